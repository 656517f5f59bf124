package demo

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
)

// job is one request, or several of the same kind.
type job struct {
	key    string
	path   string
	body   string
	times  int
	serial bool // one after the other
}

func chatBody(model, prompt string, most int, stream bool) string {
	return fmt.Sprintf(`{"model":%q,"max_tokens":%d,"stream":%t,"messages":[{"role":"user","content":%q}]}`, model, most, stream, prompt)
}

const (
	chatPath      = "/v1/chat/completions"
	messagesPath  = "/v1/messages"
	embeddingPath = "/v1/embeddings"
)

// jobs are what is sent: work, and every kind of trouble.
func jobs() []job {
	long := strings.Repeat("A tally stick is split in two, so that neither half can be changed alone. ", 20)
	return []job{
		{key: "harbour-app", path: chatPath, times: 80, body: chatBody("demo-large", "Tell me about tallies. {{provider: tokens=40}}", 60, false)},
		{key: "harbour-app", path: chatPath, times: 60, body: chatBody("demo-small", "Tell me more. {{provider: tokens=50}}", 60, true)},
		{key: "harbour-app", path: messagesPath, times: 40, body: chatBody("claude-sonnet-4-5", long+"{{provider: cached=200 write-5m=60}}", 60, false)},
		{key: "harbour-app", path: messagesPath, times: 20, body: chatBody("claude-sonnet-4-5", long+"{{provider: cached=300 write-1h=40}}", 60, true)},
		{key: "harbour-app", path: embeddingPath, times: 20, body: `{"model":"demo-embedding","input":["hazel","exchequer"]}`},
		// More at once than the key may have.
		{key: "harbour-batch", path: chatPath, times: 40, body: chatBody("demo-small", "Take your time. {{provider: slow=60ms}}", 40, false)},
		// More in a minute than the key may send, and a model that it may not use.
		{key: "harbour-intern", path: chatPath, times: 30, body: chatBody("demo-small", "Hello.", 40, false)},
		{key: "harbour-intern", path: chatPath, times: 5, body: chatBody("demo-large", "Hello.", 40, false)},
		// Until the day's two cents are spent; what is free goes on.
		{key: "lantern-app", path: chatPath, times: 25, serial: true, body: chatBody("demo-large", "Another one. {{provider: tokens=40}}", 60, false)},
		{key: "lantern-app", path: chatPath, times: 10, body: chatBody("demo-free", "For nothing.", 60, false)},
		{key: "lantern-app", path: chatPath, times: 3, body: chatBody("demo-large", "A whole book, please.", 4000, false)},
		{key: "lantern-old", path: chatPath, times: 10, body: chatBody("demo-small", "Am I still in?", 40, false)},
		// An upstream that is not there: nothing was sent, everything is returned.
		{key: "harbour-app", path: chatPath, times: 5, body: chatBody("gpt-4o-mini", "Is anybody there?", 40, false)},
		// A provider that is busy used nothing; one that fails or falls silent may have.
		{key: "harbour-app", path: messagesPath, times: 5, body: chatBody("claude-sonnet-4-5", "{{provider: error=529}}", 40, false)},
		{key: "harbour-app", path: chatPath, times: 5, body: chatBody("demo-small", "{{provider: error=503}}", 40, false)},
		{key: "harbour-app", path: chatPath, times: 5, body: chatBody("demo-small", "{{provider: cut=4 tokens=30}}", 40, true)},
		{key: "harbour-app", path: chatPath, times: 5, body: chatBody("demo-small", "{{provider: usage=none}}", 40, false)},
	}
}

const workers = 48

// send sends all jobs at once and returns how many requests that were.
func send(ctx context.Context, base string, tokens map[string]string) (int64, error) {
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: workers}}
	defer client.CloseIdleConnections()
	queue := make(chan func() error)
	var sent int64
	var mu sync.Mutex
	var failed error
	var wait sync.WaitGroup
	for range workers {
		wait.Go(func() {
			for work := range queue {
				if err := work(); err != nil {
					mu.Lock()
					failed = errors.Join(failed, err)
					mu.Unlock()
				}
			}
		})
	}
	// Round after round one of each kind, so that all kinds meet.
	list := jobs()
	for round, left := 0, true; left; round++ {
		left = false
		for _, j := range list {
			one := func() error { return post(ctx, client, base, tokens[j.key], j) }
			switch {
			case j.serial && round == 0:
				sent += int64(j.times)
				queue <- func() error {
					var err error
					for range j.times {
						err = errors.Join(err, one())
					}
					return err
				}
			case !j.serial && round < j.times:
				sent++
				queue <- one
			default:
				continue
			}
			left = true
		}
	}
	close(queue)
	wait.Wait()
	return sent, failed
}

// post sends one request and reads its answer, whatever it is. An answer that is
// cut off belongs to the demo.
func post(ctx context.Context, client *http.Client, base, token string, j job) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, base+j.path, bytes.NewReader([]byte(j.body)))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json")
	if j.path == messagesPath {
		req.Header.Set("X-Api-Key", token)
		req.Header.Set("Anthropic-Version", "2023-06-01")
	} else {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	resp, err := client.Do(req)
	if err != nil {
		return err
	}
	_, _ = io.Copy(io.Discard, resp.Body)
	return resp.Body.Close()
}
