package escrowhttp_test

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"fmt"
	"log/slog"
	"math/big"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tallystick-go/tallystick/escrow"
	"github.com/tallystick-go/tallystick/escrow/escrowhttp"
)

func TestNobodySpeaksForAnother(t *testing.T) {
	for name, header := range map[string][]string{
		"none":          nil,
		"wrong":         {"Bearer another one entirely"},
		"another's":     {"Bearer " + other},
		"two":           {"Bearer " + token, "Bearer " + token},
		"no scheme":     {token},
		"wrong scheme":  {"Basic " + token},
		"empty":         {"Bearer "},
		"the beginning": {"Bearer " + token[:len(token)-1]},
		"more":          {"Bearer " + token + "x"},
		"nothing":       {""},
	} {
		t.Run(name, func(t *testing.T) {
			a := &authority{}
			w := post(t, handler(t, a), func(r *http.Request) {
				r.Header.Del("Authorization")
				for _, v := range header {
					r.Header.Add("Authorization", v)
				}
			}, bytes.NewReader(written(t, beat())))
			require.Equal(t, http.StatusUnauthorized, w.Code)
			require.Equal(t, "Bearer", w.Header().Get("WWW-Authenticate"))
			require.Contains(t, w.Body.String(), `"code":"denied"`)
			require.Empty(t, a.heard)
		})
	}
	a := &authority{}
	w := post(t, handler(t, a), func(r *http.Request) { r.Header.Set("Authorization", "bearer  "+token+" ") }, bytes.NewReader(written(t, beat())))
	require.Equal(t, http.StatusOK, w.Code, w.Body)
	require.Len(t, a.heard, 1)
}

func TestTokens(t *testing.T) {
	for name, tokens := range map[string][]escrowhttp.Token{
		"none":        nil,
		"short":       {{Node: "a", Value: "fifteen letters"}},
		"spaces":      {{Node: "a", Value: "sixteen letters and\nmore"}},
		"no node":     {{Node: "", Value: token}},
		"odd node":    {{Node: "a b", Value: token}},
		"shared":      {{Node: "a", Value: token}, {Node: "b", Value: token}},
		"later wrong": {{Node: "a", Value: token}, {Node: "b", Value: "tiny"}},
	} {
		_, err := escrowhttp.Bearer(tokens)
		require.Error(t, err, name)
		for _, tok := range tokens {
			require.NotContains(t, err.Error(), tok.Value)
		}
	}
	who, err := escrowhttp.Bearer([]escrowhttp.Token{{Node: "a", Value: "old-old-old-old-old"}, {Node: "a", Value: "new-new-new-new-new"}, {Node: "a", Value: "new-new-new-new-new"}})
	require.NoError(t, err)
	for _, v := range []string{"old-old-old-old-old", "new-new-new-new-new"} {
		r := httptest.NewRequest(http.MethodPost, "/", nil)
		r.Header.Set("Authorization", "Bearer "+v)
		node, ok := who(r)
		require.True(t, ok)
		require.Equal(t, "a", node)
	}
	hidden := escrowhttp.Token{Node: "a", Value: token}
	require.NotContains(t, fmt.Sprintf("%v %+v %#v %s", hidden, hidden, hidden, hidden), token)
}

func TestOnlyHeartbeatsAreRead(t *testing.T) {
	good := written(t, beat())
	for name, c := range map[string]struct {
		change func(*http.Request)
		body   []byte
		code   int
	}{
		"get":              {func(r *http.Request) { r.Method = http.MethodGet }, good, http.StatusUnsupportedMediaType},
		"put":              {func(r *http.Request) { r.Method = http.MethodPut }, good, http.StatusUnsupportedMediaType},
		"no content type":  {func(r *http.Request) { r.Header.Del("Content-Type") }, good, http.StatusUnsupportedMediaType},
		"two":              {func(r *http.Request) { r.Header.Add("Content-Type", escrowhttp.ContentType) }, good, http.StatusUnsupportedMediaType},
		"json":             {func(r *http.Request) { r.Header.Set("Content-Type", "application/json") }, good, http.StatusUnsupportedMediaType},
		"form":             {func(r *http.Request) { r.Header.Set("Content-Type", "text/plain") }, good, http.StatusUnsupportedMediaType},
		"older":            {func(r *http.Request) { r.Header.Set("Content-Type", "application/vnd.tallystick.escrow-v0+json") }, good, http.StatusUnsupportedMediaType},
		"newer":            {func(r *http.Request) { r.Header.Set("Content-Type", "application/vnd.tallystick.escrow-v2+json") }, good, http.StatusUnsupportedMediaType},
		"another charset":  {func(r *http.Request) { r.Header.Set("Content-Type", escrowhttp.ContentType+"; charset=latin1") }, good, http.StatusUnsupportedMediaType},
		"compressed":       {func(r *http.Request) { r.Header.Set("Content-Encoding", "gzip") }, good, http.StatusUnsupportedMediaType},
		"empty":            {nil, nil, http.StatusUnprocessableEntity},
		"not json":         {nil, []byte("heartbeat"), http.StatusUnprocessableEntity},
		"two of them":      {nil, append(bytes.Clone(good), good...), http.StatusUnprocessableEntity},
		"too large":        {nil, append(bytes.Clone(good), bytes.Repeat([]byte(" "), escrow.MaxHeartbeatBytes)...), http.StatusUnprocessableEntity},
		"good":             {nil, good, http.StatusOK},
		"good, with utf-8": {func(r *http.Request) { r.Header.Set("Content-Type", escrowhttp.ContentType+"; charset=UTF-8") }, good, http.StatusOK},
		"good, as it is":   {func(r *http.Request) { r.Header.Set("Content-Encoding", "identity") }, good, http.StatusOK},
	} {
		t.Run(name, func(t *testing.T) {
			a := &authority{}
			w := post(t, handler(t, a), c.change, bytes.NewReader(c.body))
			require.Equal(t, c.code, w.Code, w.Body)
			require.Equal(t, escrowhttp.ContentType, w.Header().Get("Content-Type"))
			require.Equal(t, c.code == http.StatusOK, len(a.heard) == 1, "nothing reaches the authority that is not in order")
		})
	}
}

func TestOtherMachinesNeedTLS(t *testing.T) {
	good := written(t, beat())
	for address, plain := range map[string]bool{
		"127.0.0.1:1": true, "[::1]:1": true, "[::ffff:127.0.0.1]:1": true, "127.8.8.8:1": true,
		"10.0.0.1:1": false, "[2001:db8::1]:1": false, "@": false, "": false,
	} {
		a := &authority{}
		w := post(t, handler(t, a), func(r *http.Request) { r.RemoteAddr = address }, bytes.NewReader(good))
		require.Equal(t, plain, w.Code == http.StatusOK, address)
		require.Equal(t, plain, len(a.heard) == 1, address)
		w = post(t, handler(t, a), func(r *http.Request) { r.RemoteAddr, r.TLS = address, &tls.ConnectionState{} }, bytes.NewReader(good))
		require.Equal(t, http.StatusOK, w.Code, address)
	}
	trusting, err := escrowhttp.Handler(&authority{}, escrowhttp.HandlerOptions{Identify: bearer(t), AllowPlaintext: true})
	require.NoError(t, err)
	w := post(t, trusting, func(r *http.Request) { r.RemoteAddr = "10.0.0.1:1" }, bytes.NewReader(good))
	require.Equal(t, http.StatusOK, w.Code)
}

func TestAnAuthorityThatHangsIsGivenUp(t *testing.T) {
	a := &authority{answer: func(ctx context.Context) (*escrow.Answer, error) {
		<-ctx.Done()
		return nil, ctx.Err()
	}}
	h, err := escrowhttp.Handler(a, escrowhttp.HandlerOptions{Identify: bearer(t), Timeout: time.Millisecond, Logger: slog.New(slog.DiscardHandler)})
	require.NoError(t, err)
	w := post(t, h, nil, bytes.NewReader(written(t, beat())))
	require.Equal(t, http.StatusServiceUnavailable, w.Code)
	require.Equal(t, "1", w.Header().Get("Retry-After"))
}

func TestWhatAHandlerNeeds(t *testing.T) {
	for _, o := range []escrowhttp.HandlerOptions{{}, {Identify: bearer(t), Timeout: -1}} {
		_, err := escrowhttp.Handler(&authority{}, o)
		require.Error(t, err)
	}
	_, err := escrowhttp.Handler(nil, escrowhttp.HandlerOptions{Identify: bearer(t)})
	require.Error(t, err)
}

// issuer signs certificates.
type issuer struct {
	testing.TB
	certificate *x509.Certificate
	key         *ecdsa.PrivateKey
}

func newIssuer(t testing.TB) *issuer {
	t.Helper()
	i := &issuer{TB: t}
	made := i.issue(&x509.Certificate{IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign, Subject: pkix.Name{CommonName: "issuer"}})
	i.certificate, i.key = made.Leaf, made.PrivateKey.(*ecdsa.PrivateKey)
	return i
}

func (i *issuer) issue(c *x509.Certificate) tls.Certificate {
	i.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(i, err)
	c.SerialNumber, c.NotBefore, c.NotAfter = big.NewInt(1), time.Now().Add(-time.Hour), time.Now().Add(time.Hour)
	parent, signer := i.certificate, i.key
	if parent == nil {
		parent, signer = c, key
	}
	der, err := x509.CreateCertificate(rand.Reader, c, parent, &key.PublicKey, signer)
	require.NoError(i, err)
	leaf, err := x509.ParseCertificate(der)
	require.NoError(i, err)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key, Leaf: leaf}
}

func TestACertificateNamesTheNode(t *testing.T) {
	ours := newIssuer(t)
	a := &authority{}
	h, err := escrowhttp.Handler(a, escrowhttp.HandlerOptions{Identify: escrowhttp.Certificate, Logger: slog.New(slog.DiscardHandler)})
	require.NoError(t, err)
	s := httptest.NewUnstartedServer(h)
	s.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelDebug)
	pool := x509.NewCertPool()
	pool.AddCert(ours.certificate)
	s.TLS = &tls.Config{ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: pool}
	s.StartTLS()
	t.Cleanup(s.Close)
	roots := x509.NewCertPool()
	roots.AddCert(s.Certificate())

	usage := []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}
	for name, c := range map[string]struct {
		by  *issuer
		of  *x509.Certificate
		is  error
		own bool
	}{
		"common name":        {ours, &x509.Certificate{Subject: pkix.Name{CommonName: node}, ExtKeyUsage: usage}, nil, true},
		"dns name":           {ours, &x509.Certificate{Subject: pkix.Name{CommonName: "something"}, DNSNames: []string{node}, ExtKeyUsage: usage}, nil, true},
		"another node":       {ours, &x509.Certificate{Subject: pkix.Name{CommonName: node}, DNSNames: []string{"node-2"}, ExtKeyUsage: usage}, escrowhttp.ErrDenied, true},
		"several names":      {ours, &x509.Certificate{DNSNames: []string{node, "node-2"}, ExtKeyUsage: usage}, escrowhttp.ErrDenied, true},
		"no name":            {ours, &x509.Certificate{ExtKeyUsage: usage}, escrowhttp.ErrDenied, true},
		"somebody else's":    {newIssuer(t), &x509.Certificate{Subject: pkix.Name{CommonName: node}, ExtKeyUsage: usage}, escrow.ErrUnavailable, true},
		"without any":        {ours, nil, escrow.ErrUnavailable, false},
		"not for a client":   {ours, &x509.Certificate{Subject: pkix.Name{CommonName: node}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}}, escrow.ErrUnavailable, true},
		"an issuer's itself": {ours, nil, escrow.ErrUnavailable, false},
	} {
		t.Run(name, func(t *testing.T) {
			config := &tls.Config{RootCAs: roots}
			if c.own {
				config.Certificates = []tls.Certificate{c.by.issue(c.of)}
			}
			client, err := escrowhttp.NewClient(escrowhttp.ClientOptions{URL: s.URL, Transport: &http.Transport{TLSClientConfig: config}})
			require.NoError(t, err)
			defer client.Close()
			a.heard = nil
			_, err = client.Beat(t.Context(), beat())
			if c.is == nil {
				require.NoError(t, err)
				require.Len(t, a.heard, 1)
				return
			}
			require.ErrorIs(t, err, c.is)
			require.Equal(t, c.is == escrowhttp.ErrDenied, strings.Contains(err.Error(), "credential"), err)
			require.Empty(t, a.heard)
		})
	}
}
