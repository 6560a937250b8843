package scenario

import "encoding"

// as returns the value of a text, which must be right.
func as[P any, PP interface {
	*P
	encoding.TextUnmarshaler
}](text string) (p P) {
	if err := PP(&p).UnmarshalText([]byte(text)); err != nil {
		panic(err)
	}
	return p
}
