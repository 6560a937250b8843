package main

import (
	"bufio"
	"math"
	"math/rand/v2"
	"os"
)

// request is a request of the base model.
type request struct {
	at             int // ms
	prompt, output int // tokens
}

// The lengths of prompts and outputs: log-normal, with these means, and a sigma of 1.
const (
	meanPrompt, mostPrompt = 500, 4000
	meanOutput, mostOutput = 150, 1000
)

// generate returns requests that arrive at random. The same numbers give the same requests.
func generate(n int, rate float64) []request {
	r := rand.New(rand.NewPCG(1, 2))
	length := func(mean, most int) int {
		x := float64(mean) * math.Exp(r.NormFloat64()-0.5)
		return max(1, min(most, int(x)))
	}
	list := make([]request, n)
	at := 0.0
	for i := range list {
		list[i] = request{int(at), length(meanPrompt, mostPrompt), length(meanOutput, mostOutput)}
		at += 1000 * r.ExpFloat64() / rate
	}
	return list
}

// writeLines writes a file.
func writeLines(path string, lines func(w *bufio.Writer)) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	defer f.Close()
	w := bufio.NewWriter(f)
	lines(w)
	if err := w.Flush(); err != nil {
		return err
	}
	return f.Close()
}
