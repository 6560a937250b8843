package gateway_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"

	openai "github.com/sashabaranov/go-openai"

	"lorasim/bench/serving/httpapi"
)

// A client library of others that knows nothing of this project: it lists the
// models, completes text, whole and streamed, chats, and understands the error
// for an adapter that does not exist.
func TestOpenAIClientLibrary(t *testing.T) {
	inMemory(t, func(t *memory) {
		for _, api := range []httpapi.Kind{httpapi.SGLang, httpapi.VLLM} {
			srv := newGateway(t, "least-loaded", nil, newTestWorker(t, api), newTestWorker(t, api))
			cfg := openai.DefaultConfig("")
			cfg.BaseURL, cfg.HTTPClient = srv.URL+"/v1", t.client
			c := openai.NewClientWithConfig(cfg)
			ctx := context.Background()

			models, err := c.ListModels(ctx)
			if err != nil || len(models.Models) != 3 {
				t.Fatalf("%s: models %+v, %v; expected base, a and b", api, models, err)
			}
			whole, err := c.CreateCompletion(ctx, openai.CompletionRequest{Model: "a", Prompt: "hello there",
				MaxTokens: 6})
			if err != nil || len(whole.Choices) != 1 || whole.Choices[0].Text == "" || whole.Usage == nil ||
				whole.Usage.CompletionTokens == 0 {
				t.Fatalf("%s: completion %+v, %v", api, whole, err)
			}
			stream, err := c.CreateCompletionStream(ctx, openai.CompletionRequest{Model: "a", Prompt: "hello there",
				MaxTokens: 6})
			if err != nil {
				t.Fatalf("%s: stream: %v", api, err)
			}
			var text strings.Builder
			for {
				part, err := stream.Recv()
				if errors.Is(err, io.EOF) {
					break
				}
				if err != nil {
					t.Fatalf("%s: stream: %v", api, err)
				}
				if len(part.Choices) > 0 {
					text.WriteString(part.Choices[0].Text)
				}
			}
			stream.Close()
			if text.String() != whole.Choices[0].Text {
				t.Errorf("%s: streamed %q, whole %q", api, text.String(), whole.Choices[0].Text)
			}
			//lint:ignore SA1019 what clients of such servers still send
			chat, err := c.CreateChatCompletion(ctx, openai.ChatCompletionRequest{Model: "b", MaxTokens: 4,
				Messages: []openai.ChatCompletionMessage{{Role: "user", Content: "hello"}}})
			if err != nil || len(chat.Choices) != 1 || chat.Choices[0].Message.Content == "" {
				t.Errorf("%s: chat %+v, %v", api, chat, err)
			}
			_, err = c.CreateCompletion(ctx, openai.CompletionRequest{Model: "nosuch", Prompt: "x", MaxTokens: 1})
			var refused *openai.APIError
			if !errors.As(err, &refused) || refused.HTTPStatusCode != http.StatusNotFound ||
				!strings.Contains(refused.Message, "nosuch") {
				t.Errorf("%s: unknown adapter: %v, expected 404", api, err)
			}
		}
	})
}
