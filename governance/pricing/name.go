package pricing

import (
	"errors"
	"fmt"
	"strings"
)

func validName(name string) error {
	switch {
	case name == "":
		return errors.New("the name is empty")
	case len(name) > maxName:
		return fmt.Errorf("the name is longer than %d bytes", maxName)
	}
	for _, c := range name {
		if c <= ' ' || c == 0x7f {
			return errors.New("the name has spaces or control characters")
		}
	}
	return nil
}

// geoPrefixes are the regions that Bedrock puts before a vendor's name.
var geoPrefixes = map[string]bool{
	"us": true, "us-gov": true, "eu": true, "apac": true, "jp": true, "au": true, "ca": true, "sa": true, "global": true,
}

// vendorPrefixes are the vendors that Bedrock puts before a model's name.
var vendorPrefixes = [...]string{"anthropic.", "openai."}

// providers says whose entries a provider's prefix may name.
var providers = map[string][]string{
	"openai":    {"openai", "text-completion-openai"},
	"anthropic": {"anthropic"},
	"bedrock":   {"bedrock", "bedrock_converse", "anthropic"},
	"vertex_ai": {"vertex_ai-*", "vertex_ai", "anthropic"},
	"gemini":    {"gemini", "vertex_ai-language-models", "vertex_ai-embedding-models"},
}

// wanted is a model's name with the parts that say where it runs split off.
type wanted struct {
	provider string // whose entries may match, empty: anyone's
	geo      string
	names    [3]string // to look for, in this order; empty ones are skipped
}

// split takes a name apart:
//
//	openai/gpt-4o                                         the provider's entry gpt-4o
//	bedrock/us-east-1/anthropic.claude-x-v1:0             the region of the endpoint is dropped
//	us.anthropic.claude-x-20250101-v1:0                   geo us, then as anthropic.claude-x-20250101-v1:0,
//	                                                      claude-x-20250101-v1:0 or claude-x-20250101
//	vertex_ai/claude-x@20250101                           as claude-x-20250101
//	arn:aws:bedrock:us-east-1::foundation-model/X         as bedrock/X
func split(name string) wanted {
	w := wanted{}
	name = fromARN(name)
	rest := name
	if prefix, after, found := strings.Cut(name, "/"); found {
		w.provider, rest = prefix, after
	}
	if w.provider == "bedrock" {
		for {
			segment, after, found := strings.Cut(rest, "/")
			if !found || segment != "converse" && segment != "invoke" && !isRegion(segment) {
				break
			}
			rest = after
		}
	}
	if w.provider == "vertex_ai" {
		rest = strings.Replace(rest, "@", "-", 1)
	}
	if g, after, found := strings.Cut(rest, "."); found && geoPrefixes[g] && hasVendor(after) {
		w.geo, rest = g, after
	}
	w.names[0] = rest
	if hasVendor(rest) && (w.provider == "" || w.provider == "bedrock") {
		w.provider = "bedrock"
		_, w.names[1], _ = strings.Cut(rest, ".")
		w.names[2] = cutVersion(w.names[1])
	}
	return w
}

// fromARN takes the model's name out of an ARN of Bedrock that holds it.
func fromARN(name string) string {
	parts := strings.SplitN(name, ":", 6)
	if len(parts) != 6 || parts[0] != "arn" || parts[2] != "bedrock" {
		return name
	}
	kind, model, _ := strings.Cut(parts[5], "/")
	if kind != "foundation-model" && kind != "inference-profile" {
		return name
	}
	return "bedrock/" + model
}

func hasVendor(name string) bool {
	for _, v := range vendorPrefixes {
		if strings.HasPrefix(name, v) && len(name) > len(v) {
			return true
		}
	}
	return false
}

// isRegion recognises us-east-1, eu-central-2, us-gov-west-1.
func isRegion(s string) bool {
	parts := strings.Split(s, "-")
	if len(parts) < 3 || len(parts[0]) != 2 {
		return false
	}
	last := parts[len(parts)-1]
	return len(last) == 1 && last[0] >= '1' && last[0] <= '9'
}

// cutVersion drops Bedrock's "-v1:0" or "-v1".
func cutVersion(name string) string {
	i := strings.LastIndex(name, "-v")
	if i < 0 || i+2 == len(name) {
		return name
	}
	for _, c := range name[i+2:] {
		if (c < '0' || c > '9') && c != ':' {
			return name
		}
	}
	return name[:i]
}

// serves reports whether an entry of the provider owner may be meant by the
// prefix of another name.
func serves(prefix, owner string) bool {
	if prefix == "" || prefix == owner {
		return true
	}
	for _, o := range providers[prefix] {
		if stem, any := strings.CutSuffix(o, "*"); o == owner || any && strings.HasPrefix(owner, stem) {
			return true
		}
	}
	return false
}
