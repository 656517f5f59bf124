package audit

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"
)

// File is JSON lines in a file of its own, made with the first. It is flushed with every line: what was reported as exported
// has survived a crash. A last line without a newline is of a process that died while it wrote, and another's file has it.
type File struct {
	folder string
	name   func() string

	mu   sync.Mutex
	file *os.File
	torn bool // the last line may be in parts
}

// NewFile makes the folder; name is asked when the first line comes.
//
// Errors: one that says what is wrong with the folder.
func NewFile(folder string, name func() string) (*File, error) {
	if err := os.MkdirAll(folder, 0o700); err != nil {
		return nil, fmt.Errorf("audit: the folder %s cannot be made", folder)
	}
	probe, err := os.CreateTemp(folder, ".probe-*")
	if err != nil {
		return nil, fmt.Errorf("audit: the folder %s cannot be written to", folder)
	}
	err = errors.Join(probe.Close(), os.Remove(probe.Name()))
	return &File{folder: folder, name: name}, err
}

// Take implements Sink.
func (f *File) Take(_ context.Context, _ string, line []byte) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.file == nil {
		name := strings.Map(func(r rune) rune {
			if r == '-' || r == '.' || r >= '0' && r <= '9' || r >= 'A' && r <= 'Z' || r >= 'a' && r <= 'z' {
				return r
			}
			return '_'
		}, f.name())
		file, err := os.OpenFile(filepath.Join(f.folder, "audit-"+name+".jsonl"), os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
		if err != nil {
			return errors.New("audit: the file cannot be opened")
		}
		f.file = file
	}
	out := make([]byte, 0, len(line)+2)
	if f.torn { // what was begun stays a line of its own, which is no JSON
		out = append(out, '\n')
	}
	out = append(append(out, line...), '\n')
	f.torn = true
	if _, err := f.file.Write(out); err != nil {
		return errors.New("audit: the file does not take more")
	}
	if err := f.file.Sync(); err != nil {
		return errors.New("audit: the file cannot be flushed")
	}
	f.torn = false
	return nil
}

// Close closes the file.
func (f *File) Close() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.file == nil {
		return nil
	}
	return f.file.Close()
}

// Webhook posts one event at a time, with its id as the Idempotency-Key.
type Webhook struct {
	URL, Token string
	Client     *http.Client // with a timeout
}

// NewWebhook makes one. Redirects are not followed: they would carry the token elsewhere.
func NewWebhook(url, token string, timeout time.Duration) *Webhook {
	return &Webhook{URL: url, Token: token, Client: &http.Client{
		Timeout: timeout, Transport: &http.Transport{Proxy: http.ProxyFromEnvironment, IdleConnTimeout: 90 * time.Second},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
}

// Take implements Sink.
func (w *Webhook) Take(ctx context.Context, id string, line []byte) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, w.URL, bytes.NewReader(line))
	if err != nil {
		return errors.New("audit: the webhook's address cannot be used")
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Idempotency-Key", id)
	if w.Token != "" {
		req.Header.Set("Authorization", "Bearer "+w.Token)
	}
	resp, err := w.Client.Do(req)
	if err != nil {
		return errors.New("audit: no answer from the webhook")
	}
	defer resp.Body.Close()
	_, _ = io.CopyN(io.Discard, resp.Body, 64<<10)
	switch code := resp.StatusCode; {
	case code >= 200 && code <= 299:
		return nil
	case code >= 400 && code <= 499 && code != http.StatusRequestTimeout && code != http.StatusTooManyRequests:
		return fmt.Errorf("%w: the webhook answered %d", ErrRefused, code)
	default:
		return fmt.Errorf("audit: the webhook answered %d", code)
	}
}

// Close closes idle connections.
func (w *Webhook) Close() error {
	w.Client.CloseIdleConnections()
	return nil
}
