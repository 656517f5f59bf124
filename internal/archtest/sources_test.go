package archtest

import (
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var (
	sourceLine = regexp.MustCompile(`(?m)^Source: `)
	// A record, the design or a page, and the headings that are meant, if any.
	sourceItem = regexp.MustCompile(`(ADR-[0-9]+|design|internal/docs/[a-z0-9-]+\.md)((?:,? "[^"]+")*)`)
	quoted     = regexp.MustCompile(`"([^"]+)"`)
	heading    = regexp.MustCompile(`(?m)^(?:#+ (.+)|\*\*([^*]+?)\.\*\*.*)$`)
)

// citation is one heading that a comment names; an empty heading stands for the whole page.
type citation struct{ page, heading string }

// citations reads what a comment says after "Source:", to the end of its paragraph. Rest is what it could not read.
func citations(comment string) (list []citation, rest string) {
	for _, at := range sourceLine.FindAllStringIndex(comment, -1) {
		text, _, _ := strings.Cut(comment[at[1]:], "\n\n")
		text = strings.Join(strings.Fields(text), " ")
		for _, m := range sourceItem.FindAllStringSubmatch(text, -1) {
			page := m[1]
			switch {
			case page == "design":
				page = "design.md"
			case strings.HasPrefix(page, "ADR-"):
				page = strings.ToLower(page) + ".md"
			}
			names := quoted.FindAllStringSubmatch(m[2], -1)
			if names == nil {
				names = [][]string{{"", ""}}
			}
			for _, name := range names {
				list = append(list, citation{path.Base(page), name[1]})
			}
		}
		rest += strings.Trim(sourceItem.ReplaceAllString(text, ""), " ,;.")
		if !strings.HasSuffix(text, ".") {
			rest += " (no full stop at the end)"
		}
	}
	return list, rest
}

// page reads one of the repository's own documents.
func page(name string) (string, error) {
	body, err := os.ReadFile(filepath.Join("..", "docs", name))
	return string(body), err
}

// headings lists a page's headings, and the bold words that its paragraphs begin with.
func headings(text string) []string {
	var out []string
	for _, m := range heading.FindAllStringSubmatch(text, -1) {
		out = append(out, m[1]+m[2])
	}
	return out
}

func TestSourcesExist(t *testing.T) {
	pages := map[string][]string{}
	found := 0
	for _, f := range theTree(t).files {
		for _, group := range f.syntax.Comments {
			list, rest := citations(group.Text())
			if rest != "" {
				t.Errorf(`%s: in its Source line %q is not understood; write: Source: ADR-046 "Heading", design "Heading", internal/docs/page.md "Heading".`, f.path, rest)
			}
			for _, c := range list {
				found++
				if pages[c.page] == nil {
					text, err := page(c.page)
					if err != nil {
						t.Errorf("%s names internal/docs/%s, which is not there", f.path, c.page)
					}
					pages[c.page] = append(headings(text), "")
				}
				if !slices.Contains(pages[c.page], c.heading) {
					t.Errorf("%s names %q, which is no heading of internal/docs/%s", f.path, c.heading, c.page)
				}
			}
		}
	}
	if found < 40 {
		t.Errorf("only %d sources found", found)
	}
}

func TestCitationsAreRead(t *testing.T) {
	const comment = "Settle ends it.\n\nSource: ADR-046 \"Global admission\nand accounting\", \"Shared identity\"; design \"Settlement\", internal/docs/performance.md.\n\nMore.\n"
	want := []citation{{"adr-046.md", "Global admission and accounting"}, {"adr-046.md", "Shared identity"}, {"design.md", "Settlement"}, {"performance.md", ""}}
	if have, rest := citations(comment); !slices.Equal(have, want) || rest != "" {
		t.Errorf("%q, and %q left", have, rest)
	}
	for _, bad := range []string{"Source: the design.\n", "Source: ADR-046 Settlement.\n", "Source: design \"Settlement\"\n", "Source: design \"Settle.\n"} {
		if _, rest := citations(bad); rest == "" {
			t.Errorf("%q was understood", bad)
		}
	}
	if have := headings("# A\ntext\n## B c\n**D e.** text\nnot **F.**\n"); !slices.Equal(have, []string{"A", "B c", "D e"}) {
		t.Errorf("headings: %q", have)
	}
}
