package keys_test

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"log/slog"
	"math/big"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tallystick-go/tallystick/keys"
)

// The published vectors: 32 bytes, the token, its SHA-256. They were computed by
// another program in another language.
var vectors = []struct{ secret, token, hash string }{
	{strings.Repeat("00", 32), "tly_00000000000000000000000000000000000000000001N4bGd", "874adf2efd9f0bb9016c054206a5e38ffcb41eb2c810ab3f0bdd876811c6f049"},
	{strings.Repeat("00", 31) + "01", "tly_000000000000000000000000000000000000000000118IeOT", "5d0c8afe93c0c918dd28f412e2e176ba47a546e42ed3f486e85127b34c41d46f"},
	{strings.Repeat("00", 31) + "1d", "tly_000000000000000000000000000000000000000000T00DoXi", "9d2d35629692e53172c3c830db8e93791bc8b8ca4cfb7ddf8cd025c50554fc5f"}, // a checksum with leading zeros
	{"000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f", "tly_003aUlTJC7tjlCTQj2uNU3MFagCXG9LRKRcwGkBIDlf1tyOQl", "3c8d54631db51576705db18a064c4bee8e462514f56e5d52a6c845c2d5d219c1"},
	{strings.Repeat("ff", 32), "tly_yhjskwdA6OZ1AL1YmHWZWm8LLG7HjnuCA2j5rOw8Xp147u5Sl", "e18ddfed248ce44a33a62e86630e674012f2086563f202b036aa0ba3a72c1794"},
}

func mintFrom(t testing.TB, f keys.Format, secret []byte) keys.Token {
	t.Helper()
	token, err := f.Mint(bytes.NewReader(secret))
	require.NoError(t, err)
	return token
}

func TestTokenVectors(t *testing.T) {
	for _, v := range vectors {
		secret, err := hex.DecodeString(v.secret)
		require.NoError(t, err)
		token := mintFrom(t, keys.Format{}, secret)
		assert.Equal(t, v.token, token.Reveal())
		hash := [32]byte(token.Hash())
		assert.Equal(t, v.hash, hex.EncodeToString(hash[:]))
		parsed, err := keys.Parse(v.token)
		require.NoError(t, err)
		assert.Equal(t, v.token, parsed.Reveal())
	}
}

func TestParseRefusesEveryOtherSpelling(t *testing.T) {
	token := vectors[3].token
	refused := func(s string) {
		t.Helper()
		_, err := keys.Parse(s)
		require.Equal(t, keys.ErrUnknown, err, "%q", s)
	}
	for i := range token {
		for _, c := range []byte("0Az!\x00") {
			if token[i] != c {
				refused(token[:i] + string(c) + token[i+1:]) // any one character
			}
		}
		refused(token[:i])                   // cut short
		refused(token[:i] + "0" + token[i:]) // one too many
	}
	swapped := []byte(token)
	swapped[10], swapped[11] = swapped[11], swapped[10]
	refused(string(swapped))

	// The largest number has one spelling; a larger one with a right checksum has none.
	largest := vectors[4].token
	for _, body := range []string{"yhjskwdA6OZ1AL1YmHWZWm8LLG7HjnuCA2j5rOw8Xp2", strings.Repeat("z", 43)} {
		refused(withChecksum("tly_" + body))
	}
	require.Equal(t, largest, withChecksum(largest[:47]), "the test's own checksum")
	for _, body := range []string{"0" + largest[4:47], largest[4:46], "", strings.Repeat("!", 43), strings.Repeat("-", 43), strings.Repeat("\x00", 43), "0" + strings.Repeat("é", 21)} {
		refused(withChecksum("tly_" + body)) // a right checksum does not make a token
	}
	refused(withChecksum("TLY_" + largest[4:47]))
	refused(withChecksum("abc_" + largest[4:47]))
}

// withChecksum is written from the published rule, not from the code.
func withChecksum(covered string) string {
	crc := ^uint32(0)
	for i := range len(covered) {
		crc ^= uint32(covered[i])
		for range 8 {
			crc = crc>>1 ^ 0xedb88320&-(crc&1)
		}
	}
	const digits = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
	n, out := uint64(^crc), ""
	for range 6 {
		out = string(digits[n%62]) + out
		n /= 62
	}
	return covered + out
}

func TestMint(t *testing.T) {
	seen := map[string]bool{}
	for range 1000 {
		token, err := keys.Mint(nil)
		require.NoError(t, err)
		require.Len(t, token.Reveal(), 53)
		require.False(t, seen[token.Reveal()])
		seen[token.Reveal()] = true
	}
	_, err := keys.Mint(bytes.NewReader(make([]byte, 31)))
	require.Error(t, err, "too little randomness is no token")
}

func TestFormat(t *testing.T) {
	f := keys.Format{Prefixes: []string{"acme_", "tly_"}, Foreign: []string{"sk-", "sk_live_"}}
	require.NoError(t, f.Validate())
	own := mintFrom(t, f, make([]byte, 32))
	require.True(t, strings.HasPrefix(own.Reveal(), "acme_"))
	for _, s := range []string{own.Reveal(), vectors[0].token, "sk-1234567890123456", "sk_live_ABCDEFGH12345678", "sk-" + strings.Repeat("~", 509)} {
		_, err := f.Parse(s)
		require.NoError(t, err, s)
	}
	for _, s := range []string{
		"acme_" + vectors[0].token[4:], // the checksum covers the prefix
		"sk-123456789012345", "sk-with a space inside", "sk-" + strings.Repeat("x", 510), "pk-12345678901234567890", "sk-\x00234567890123456", "sk-é2345678901234567",
		"Sk-1234567890123456",
	} {
		_, err := f.Parse(s)
		require.Equal(t, keys.ErrUnknown, err, s)
	}
	_, err := keys.Parse("sk-1234567890123456")
	require.Equal(t, keys.ErrUnknown, err, "foreign prefixes are an option")

	for name, bad := range map[string]keys.Format{
		"no underscore": {Prefixes: []string{"acme"}}, "only underscore": {Prefixes: []string{"_"}}, "empty": {Prefixes: []string{""}},
		"inner": {Prefixes: []string{"a_b_"}}, "long": {Prefixes: []string{strings.Repeat("a", 32) + "_"}}, "unicode": {Prefixes: []string{"é_"}},
		"foreign empty": {Foreign: []string{""}}, "foreign short": {Foreign: []string{"a-"}}, "foreign open": {Foreign: []string{"abc"}},
		"foreign own": {Foreign: []string{"tly_x-"}}, "foreign of own": {Prefixes: []string{"sk_"}, Foreign: []string{"sk_live_"}}, "space": {Foreign: []string{"a b-"}},
	} {
		require.ErrorIs(t, bad.Validate(), keys.ErrInvalid, name)
	}
}

type holder struct {
	Token  keys.Token
	Hash   keys.Hash
	inside keys.Token
}

func TestSecretsDoNotPrint(t *testing.T) {
	token := mintFrom(t, keys.Format{}, bytes.Repeat([]byte{0x5a}, 32))
	plain, hash := token.Reveal(), [32]byte(token.Hash())
	h := holder{token, token.Hash(), token}
	var printed bytes.Buffer
	for _, v := range []any{token, &token, token.Hash(), h, &h, []keys.Token{token}, map[string]any{"t": token}, keys.CreateKey{Token: token}, keys.RotateKey{Token: token}, keys.CreatedKey{Token: token}} {
		for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%X", "%d", "%o", "%U", "%T %v"} {
			fmt.Fprintf(&printed, verb+"\n", v, v)
		}
		encoded, err := json.Marshal(v)
		if err == nil { // funcs inside would not encode
			printed.Write(encoded)
		}
		slog.New(slog.NewTextHandler(&printed, nil)).Info("x", "v", v)
		slog.New(slog.NewJSONHandler(&printed, nil)).Info("x", "v", v)
	}
	fmt.Fprint(&printed, fmt.Errorf("failed: %v", token), h.inside)
	for _, secret := range []string{plain, plain[4:20], hex.EncodeToString(hash[:]), strings.ToUpper(hex.EncodeToString(hash[:])), fmt.Sprint(hash[:8])[1:10]} {
		assert.NotContains(t, printed.String(), secret)
	}
}

func TestHashEqual(t *testing.T) {
	a, b := mintFrom(t, keys.Format{}, make([]byte, 32)).Hash(), mintFrom(t, keys.Format{}, bytes.Repeat([]byte{1}, 32)).Hash()
	assert.True(t, a.Equal(a))
	assert.False(t, a.Equal(b))
}

// FuzzParse: whatever is accepted is what minting its number gives, to the byte.
func FuzzParse(f *testing.F) {
	for _, v := range vectors {
		f.Add(v.token)
	}
	for _, s := range []string{"", "tly_", withChecksum("tly_" + strings.Repeat("z", 43)), "sk-1234567890123456", "tly_\xff"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, presented string) {
		token, err := keys.Parse(presented)
		if err != nil {
			require.Equal(t, keys.ErrUnknown, err)
			return
		}
		require.Equal(t, presented, token.Reveal())
		number := new(big.Int)
		for _, c := range presented[4:47] {
			digit := strings.IndexRune("0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz", c)
			require.GreaterOrEqual(t, digit, 0)
			number.Add(number.Mul(number, big.NewInt(62)), big.NewInt(int64(digit)))
		}
		require.LessOrEqual(t, number.BitLen(), 256)
		require.Equal(t, presented, mintFrom(t, keys.Format{}, number.FillBytes(make([]byte, 32))).Reveal())
		require.Equal(t, presented, withChecksum(presented[:47]))
	})
}
