package httpapi

import (
	"bufio"
	"bytes"
	"mime"
	"net/textproto"
)

// longestForm bounds a name in a form, bytes.
const longestForm = 4096

// InForm returns where the name of the model stands in the body of a form (multipart/form-data), such as one with audio
// to transcribe. Of several names the last one counts, as in the engines. The body may be cut off. ok is false if no
// whole name is there.
func InForm(body []byte, boundary string) (from, to int, ok bool) {
	if boundary == "" {
		return 0, 0, false
	}
	delimiter := []byte("--" + boundary)
	at := nextPart(body, delimiter, 0)
	for at >= 0 {
		part := at + len(delimiter)
		at = nextPart(body, delimiter, part)
		if at < 0 {
			break
		}
		head := bytes.IndexByte(body[part:at], '\n')
		if head < 0 {
			continue
		}
		start, end := part+head+1, at
		for _, eol := range []string{"\n", "\r"} { // the end of the line before the delimiter
			end -= len(body[start:end]) - len(bytes.TrimSuffix(body[start:end], []byte(eol)))
		}
		text := body[start:end]
		size, name := formName(text)
		if value := text[size:]; name == "model" && len(value) <= longestForm {
			from, to, ok = start+size, end, true
		}
	}
	return from, to, ok
}

// nextPart returns the next delimiter at the start of a line; -1: there is none.
func nextPart(body, delimiter []byte, at int) int {
	for {
		i := bytes.Index(body[at:], delimiter)
		if i < 0 {
			return -1
		}
		at += i
		end := at + len(delimiter)
		if end == len(body) {
			return -1 // it may go on
		}
		if (at == 0 || body[at-1] == '\n') && bytes.IndexByte([]byte("\r\n -\t"), body[end]) >= 0 {
			return at
		}
		at = end
	}
}

// formName returns the size of the head of a part with the empty line that ends it, and the name of the part.
func formName(part []byte) (size int, name string) {
	size = bytes.Index(part, []byte("\r\n\r\n")) + 4
	if size < 4 {
		if size = bytes.Index(part, []byte("\n\n")) + 2; size < 2 {
			return 0, ""
		}
	}
	head, err := textproto.NewReader(bufio.NewReader(bytes.NewReader(part[:size]))).ReadMIMEHeader()
	if err != nil {
		return size, ""
	}
	_, params, _ := mime.ParseMediaType(head.Get("Content-Disposition"))
	return size, params["name"]
}
