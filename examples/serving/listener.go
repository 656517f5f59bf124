// Package serving is what the example programs have in common around their handlers:
// listeners that are drained in order, and readiness that asks part by part.
package serving

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"time"
)

// Bounds are those of one listener's connections.
type Bounds struct {
	ReadHeader, Read, Write, Idle time.Duration
}

// Listener is an address with a server on it.
type Listener struct {
	net.Listener
	server *http.Server
	secure bool
}

// Listen takes an address; Serve answers on it. A nil configuration is plain HTTP.
func Listen(ctx context.Context, address string, h http.Handler, b Bounds, c *tls.Config, logger *slog.Logger) (*Listener, error) {
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "tcp", address)
	if err != nil {
		return nil, fmt.Errorf("server: cannot listen: %w", err)
	}
	return &Listener{l, &http.Server{
		Handler:           h,
		ReadHeaderTimeout: b.ReadHeader,
		ReadTimeout:       b.Read,
		WriteTimeout:      b.Write,
		IdleTimeout:       b.Idle,
		MaxHeaderBytes:    64 << 10,
		TLSConfig:         c,
		ErrorLog:          slog.NewLogLogger(logger.Handler(), slog.LevelDebug),
	}, c != nil}, nil
}

// Address is host:port, or empty where there is no listener.
func (l *Listener) Address() string {
	if l == nil {
		return ""
	}
	return l.Addr().String()
}

// URL is where the listener is reached, or empty where there is none.
func (l *Listener) URL() string {
	switch {
	case l == nil:
		return ""
	case l.secure:
		return "https://" + l.Address()
	}
	return "http://" + l.Address()
}

func (l *Listener) serve() error {
	if l.secure {
		return l.server.ServeTLS(l, "", "")
	}
	return l.server.Serve(l)
}

// Serve answers on all listeners until the context ends, and then drains. Those that are
// nil are passed over.
//
// Errors: why serving ended too early, and those of drain.
func Serve(ctx context.Context, drain func(context.Context) error, listeners ...*Listener) error {
	ended := make(chan error, len(listeners))
	count := 0
	for _, l := range listeners {
		if l != nil {
			count++
			go func() { ended <- l.serve() }()
		}
	}
	var err error
	select {
	case <-ctx.Done():
	case err = <-ended:
		count--
	}
	// The deadline is drain's own: the context has ended.
	err = errors.Join(err, drain(context.WithoutCancel(ctx)))
	for range count {
		if e := <-ended; !errors.Is(e, http.ErrServerClosed) {
			err = errors.Join(err, e)
		}
	}
	return err
}

// Shutdown stops to listen, in this order, and lets requests in flight end. What takes
// longer than the context allows is cut.
//
// Errors: the context's, when something was cut.
func Shutdown(ctx context.Context, listeners ...*Listener) error {
	var err error
	for _, l := range listeners {
		if l == nil {
			continue
		}
		if e := l.server.Shutdown(ctx); e != nil {
			err = errors.Join(err, e, l.server.Close())
		}
	}
	return err
}

// Close closes them at once.
func Close(listeners ...*Listener) error {
	var err error
	for _, l := range listeners {
		if l == nil {
			continue
		}
		err = errors.Join(err, l.server.Close())
		if e := l.Close(); !errors.Is(e, net.ErrClosed) {
			err = errors.Join(err, e)
		}
	}
	return err
}
