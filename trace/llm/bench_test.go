package llm_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"testing"

	"lorasim/internal/shareddata"
	"lorasim/internal/testutil"
	"lorasim/trace"
	"lorasim/trace/llm"
)

func benchmark(b *testing.B, format llm.Format, path string) {
	info, err := os.Stat(path)
	if err != nil {
		b.Fatal(err)
	}
	b.SetBytes(info.Size())
	b.ReportAllocs()
	rows := 0
	for b.Loop() {
		r, err := llm.Open(context.Background(), format, path, llm.Options{Adapters: trace.Names(4, nil),
			Assign: func() int32 { return 3 }})
		if err != nil {
			b.Fatal(err)
		}
		for {
			_, err := r.Next()
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				b.Fatal(err)
			}
			rows++
		}
		r.Close()
	}
	b.ReportMetric(float64(rows)/b.Elapsed().Seconds(), "rows/s")
}

func BenchmarkAzure(b *testing.B) {
	var s strings.Builder
	s.WriteString("TIMESTAMP,ContextTokens,GeneratedTokens\n")
	for i := range 200_000 {
		fmt.Fprintf(&s, "2024-05-12 %02d:%02d:%02d.%07d+00:00,%d,%d\n",
			i/10/3600, i/10/60%60, i/10%60, i%10*1_000_001, 1+i%4096, 1+i%900)
	}
	benchmark(b, llm.AzureLLM, testutil.File(b, "trace", s.String()))
}

func BenchmarkBurstGPT(b *testing.B) {
	var s strings.Builder
	s.WriteString("Timestamp,Session ID,Elapsed time,Model,Request tokens,Response tokens,Total tokens,Log Type\n")
	for i := range 200_000 {
		fmt.Fprintf(&s, "%d.0,1722ac82-0a46-4bf0-aa08-89794e7a2b3f,43,GPT-4,%d,%d,1352,Conversation log\n",
			19440110+i/4, 1+i%4096, 1+i%900)
	}
	benchmark(b, llm.BurstGPT, testutil.File(b, "trace", s.String()))
}

func BenchmarkMooncake(b *testing.B) {
	benchmark(b, llm.Mooncake, shareddata.Path(b, "mooncake/conversation_trace.jsonl"))
}
