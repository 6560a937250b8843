package extproc

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net/http"
	"strconv"
	"time"
)

// Status codes of gRPC.
const (
	grpcOK              = 0
	grpcInvalidArgument = 3
	grpcUnimplemented   = 12
)

// maxMessage bounds one message, bytes. Envoy sends a body in pieces of its buffers, which are smaller.
const maxMessage = 16 << 20

var errMessage = errors.New("message is compressed or too long")

// call is one gRPC call over HTTP/2.
type call struct {
	in   io.Reader
	out  http.ResponseWriter
	rc   *http.ResponseController
	buf  []byte
	size [5]byte
}

// begin answers the headers of a call.
func begin(rw http.ResponseWriter, r *http.Request) *call {
	c := &call{in: r.Body, out: rw, rc: http.NewResponseController(rw)}
	rw.Header().Set("Content-Type", "application/grpc")
	rw.WriteHeader(http.StatusOK)
	_ = c.flush() // clients may wait for the headers before they send a message
	return c
}

// receive reads a message; it is valid until the next one. The error is io.EOF at the end.
func (c *call) receive() ([]byte, error) {
	if _, err := io.ReadFull(c.in, c.size[:]); err != nil {
		return nil, err
	}
	n := binary.BigEndian.Uint32(c.size[1:])
	if c.size[0] != 0 || n > maxMessage {
		return nil, errMessage
	}
	if cap(c.buf) < int(n) {
		c.buf = make([]byte, n)
	}
	c.buf = c.buf[:n]
	_, err := io.ReadFull(c.in, c.buf)
	return c.buf, err
}

// send writes a message.
func (c *call) send(m []byte) error {
	frame := make([]byte, 5, 5+len(m))
	binary.BigEndian.PutUint32(frame[1:], uint32(len(m)))
	_, err := c.out.Write(append(frame, m...))
	return err
}

func (c *call) flush() error { return c.rc.Flush() }

// end writes the trailers.
func (c *call) end(code int, text string) {
	c.out.Header().Set(http.TrailerPrefix+"Grpc-Status", strconv.Itoa(code))
	if text != "" {
		c.out.Header().Set(http.TrailerPrefix+"Grpc-Message", text)
	}
}

// SelfSigned returns a self-signed certificate, valid for 10 years from now. It is meant for clients that do not
// verify it, as gateways do not with endpoint pickers.
func SelfSigned(now time.Time) (tls.Certificate, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return tls.Certificate{}, fmt.Errorf("key of the certificate: %w", err)
	}
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	if err != nil {
		return tls.Certificate{}, fmt.Errorf("serial number of the certificate: %w", err)
	}
	t := &x509.Certificate{SerialNumber: serial, Subject: pkix.Name{Organization: []string{"lorasim"}},
		NotBefore: now.Add(-time.Hour), NotAfter: now.AddDate(10, 0, 0), DNSNames: []string{"localhost"},
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}}
	der, err := x509.CreateCertificate(rand.Reader, t, t, &key.PublicKey, key)
	if err != nil {
		return tls.Certificate{}, fmt.Errorf("certificate: %w", err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, nil
}

// Configure makes a server speak HTTP/2, with and without TLS. It permits as many streams as Envoy opens on one
// connection.
func Configure(s *http.Server) {
	s.Protocols = new(http.Protocols)
	s.Protocols.SetHTTP2(true)
	s.Protocols.SetUnencryptedHTTP2(true)
	s.HTTP2 = &http.HTTP2Config{MaxConcurrentStreams: 1 << 20, MaxReceiveBufferPerStream: 1 << 20,
		MaxReceiveBufferPerConnection: 16 << 20}
}
