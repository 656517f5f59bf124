package policytest

import (
	"fmt"
	"slices"
	"strings"
)

// Refused is an input that is no document, and the place that the error must name.
type Refused struct {
	Name  string
	Input string // JSON, and therefore YAML too, but for a few that are neither
	Path  string
}

// Mistakes lists inputs that every decoder of documents must refuse with a *policy.Error.
func Mistakes() []Refused {
	out := make([]Refused, 0, len(refused))
	for name, r := range refused {
		out = append(out, Refused{name, r.input, r.path})
	}
	slices.SortFunc(out, func(a, b Refused) int { return strings.Compare(a.Name, b.Name) })
	return out
}

// wrap makes a document of one rule.
func wrap(rule string) string {
	return `{"apiVersion":"tallystick.dev/v1alpha1","kind":"GovernancePolicy","metadata":{"name":"p"},"spec":{"subject":{"team":"t"},"rules":[` + rule + `]}}`
}

// budget makes a document of one budget with these fields.
func budget(fields string) string {
	return wrap(`{"name":"r","failurePolicy":"FailClosed","budget":{` + fields + `}}`)
}

func rule(kind string) string { return wrap(`{"name":"r","failurePolicy":"FailClosed",` + kind + `}`) }

// routed makes a document of one budget and one routing rule.
func routed(routing string) string {
	return wrap(`{"name":"b","failurePolicy":"FailClosed","budget":{"limitMilliUSD":1,"period":"day"}},{"name":"r","failurePolicy":"FailOpen","routing":{` + routing + `}}`)
}

const (
	ruled = "documents[0].spec.rules[0]"
	money = ruled + ".budget"
	route = "documents[0].spec.rules[1].routing"
)

// refused are inputs and the places that their errors must name.
var refused = map[string]struct{ input, path string }{
	"nothing":                      {``, "documents"},
	"no JSON":                      {`{`, "documents"},
	"something behind":             {wrap(`{"name":"r","failurePolicy":"FailOpen","rate":{"rpm":1}}`) + `{}`, "documents"},
	"a text":                       {`"x"`, "documents[0]"},
	"a null":                       {`null`, "documents[0]"},
	"a list in a list":             {`[[]]`, "documents[0]"},
	"no fields":                    {`{}`, "documents[0].apiVersion"},
	"another version":              {strings.Replace(budget(""), "v1alpha1", "v1", 1), "documents[0].apiVersion"},
	"another kind":                 {strings.Replace(budget(`"unlimited":true`), "GovernancePolicy", "governancePolicy", 1), "documents[0].kind"},
	"an unknown field":             {strings.Replace(budget(""), `"kind"`, `"Kind":"x","kind"`, 1), "documents[0].Kind"},
	"a field twice":                {strings.Replace(budget(`"unlimited":true`), `"name":"p"`, `"name":"p","name":"p"`, 1), "documents[0].metadata.name"},
	"a field twice, escaped":       {strings.Replace(budget(`"unlimited":true`), `"name":"p"`, `"name":"p","n\u0061me":"q"`, 1), "documents[0].metadata.name"},
	"labels":                       {strings.Replace(budget(""), `"name":"p"`, `"name":"p","labels":{}`, 1), "documents[0].metadata.labels"},
	"a status":                     {strings.Replace(budget(`"unlimited":true`), `"spec"`, `"status":{},"spec"`, 1), "documents[0].status"},
	"no name":                      {strings.Replace(budget(`"unlimited":true`), `{"name":"p"}`, `{}`, 1), "documents[0].metadata.name"},
	"an empty name":                {strings.Replace(budget(""), `"name":"p"`, `"name":""`, 1), "documents[0].metadata.name"},
	"a name with a blank":          {strings.Replace(budget(`"unlimited":true`), `"name":"p"`, `"name":"p q"`, 1), "documents[0].metadata.name"},
	"a long name":                  {strings.Replace(budget(`"unlimited":true`), `"name":"p"`, `"name":"`+strings.Repeat("p", 129)+`"`, 1), "documents[0].metadata.name"},
	"no subject":                   {strings.Replace(budget(`"unlimited":true`), `"subject":{"team":"t"},`, ``, 1), "documents[0].spec.subject"},
	"an empty subject":             {strings.Replace(budget(`"unlimited":true`), `{"team":"t"}`, `{}`, 1), "documents[0].spec.subject"},
	"a null team":                  {strings.Replace(budget(""), `{"team":"t"}`, `{"team":null,"user":"u"}`, 1), "documents[0].spec.subject.team"},
	"an empty user":                {strings.Replace(budget(""), `{"team":"t"}`, `{"team":"t","user":""}`, 1), "documents[0].spec.subject.user"},
	"a team with a slash":          {strings.Replace(budget(`"unlimited":true`), `{"team":"t"}`, `{"team":"t/u"}`, 1), "documents[0].spec.subject.team"},
	"a user with a newline":        {strings.Replace(budget(`"unlimited":true`), `{"team":"t"}`, `{"user":"a\nb"}`, 1), "documents[0].spec.subject.user"},
	"a user with a lone surrogate": {strings.Replace(budget(`"unlimited":true`), `{"team":"t"}`, `{"user":"\ud800"}`, 1), "documents[0].spec.subject.user"},
	"a user who reads backwards":   {strings.Replace(budget(`"unlimited":true`), `{"team":"t"}`, `{"user":"\u202ex"}`, 1), "documents[0].spec.subject.user"},
	"a long user":                  {strings.Replace(budget(`"unlimited":true`), `{"team":"t"}`, `{"user":"`+strings.Repeat("u", 257)+`"}`, 1), "documents[0].spec.subject.user"},
	"no rules":                     {wrap(``), "documents[0].spec.rules"},
	"rules that are no list":       {strings.Replace(wrap(``), `[]`, `{}`, 1), "documents[0].spec.rules"},
	"too many rules":               {wrap(strings.Repeat(`{"name":"r"},`, 64) + `{"name":"r"}`), "documents[0].spec.rules"},
	"a rule of no kind":            {wrap(`{"name":"r","failurePolicy":"FailOpen"}`), ruled},
	"a rule of two kinds":          {wrap(`{"name":"r","failurePolicy":"FailOpen","rate":{"rpm":1},"concurrency":{"permits":1}}`), ruled},
	"a rule without a name":        {wrap(`{"failurePolicy":"FailOpen","rate":{"rpm":1}}`), ruled + ".name"},
	"two rules of one name":        {wrap(`{"name":"r","failurePolicy":"FailOpen","rate":{"rpm":1}},{"name":"r","failurePolicy":"FailOpen","concurrency":{"permits":1}}`), "documents[0].spec.rules[1].name"},
	"no failure policy":            {wrap(`{"name":"r","rate":{"rpm":1}}`), ruled + ".failurePolicy"},
	"another failure policy":       {wrap(`{"name":"r","failurePolicy":"failopen","rate":{"rpm":1}}`), ruled + ".failurePolicy"},

	"a hard cap that fails open": {wrap(`{"name":"r","failurePolicy":"FailOpen","budget":{"limitMilliUSD":1,"hardCap":true,"period":"day"}}`), ruled + ".failurePolicy"},
	"a quota that fails open":    {wrap(`{"name":"r","failurePolicy":"FailOpen","tokenQuota":{"limitTokens":1,"period":"day"}}`), ruled + ".failurePolicy"},

	"an empty budget":            {budget(``), money + ".limitMilliUSD"},
	"a budget not unlimited":     {budget(`"unlimited":false,"period":"day"`), money + ".limitMilliUSD"},
	"a limit beside unlimited":   {budget(`"limitMilliUSD":0,"unlimited":true`), money + ".limitMilliUSD"},
	"a cap beside unlimited":     {budget(`"hardCap":true,"unlimited":true`), money + ".hardCap"},
	"a lease beside unlimited":   {budget(`"lease":{"grantMilliUSD":1},"unlimited":true`), money + ".lease"},
	"tiers beside unlimited":     {budget(`"tiers":[{"thresholdPercent":1}],"unlimited":true`), money + ".tiers"},
	"no period":                  {budget(`"limitMilliUSD":1`), money + ".period"},
	"another period":             {budget(`"limitMilliUSD":1,"period":"year"`), money + ".period"},
	"a negative limit":           {budget(`"limitMilliUSD":-1,"period":"day"`), money + ".limitMilliUSD"},
	"minus zero":                 {budget(`"limitMilliUSD":-0,"period":"day"`), money + ".limitMilliUSD"},
	"a limit beyond microUSD":    {budget(`"limitMilliUSD":9223372036854776,"period":"day"`), money + ".limitMilliUSD"},
	"a limit beyond 64 bits":     {budget(`"limitMilliUSD":9223372036854775808,"period":"day"`), money + ".limitMilliUSD"},
	"a limit with a fraction":    {budget(`"limitMilliUSD":1.0,"period":"day"`), money + ".limitMilliUSD"},
	"a limit with an exponent":   {budget(`"limitMilliUSD":1e3,"period":"day"`), money + ".limitMilliUSD"},
	"a limit as a text":          {budget(`"limitMilliUSD":"1","period":"day"`), money + ".limitMilliUSD"},
	"a cap as a text":            {budget(`"limitMilliUSD":1,"hardCap":"true","period":"day"`), money + ".hardCap"},
	"another zone":               {budget(`"limitMilliUSD":1,"period":"day","timezone":"Mars/Olympus"`), money + ".timezone"},
	"the machine's zone":         {budget(`"limitMilliUSD":1,"period":"day","timezone":"Local"`), money + ".timezone"},
	"a week that starts nowhere": {budget(`"limitMilliUSD":1,"period":"week","weekStart":"Monday"`), money + ".weekStart"},
	"a week's start in a month":  {budget(`"limitMilliUSD":1,"period":"month","weekStart":"sunday"`), money + ".weekStart"},
	"a month's day in a week":    {budget(`"limitMilliUSD":1,"period":"week","monthDay":5`), money + ".monthDay"},
	"the day 0":                  {budget(`"limitMilliUSD":1,"period":"month","monthDay":0`), money + ".monthDay"},
	"the day 32":                 {budget(`"limitMilliUSD":1,"period":"month","monthDay":32`), money + ".monthDay"},
	"the hour 24":                {budget(`"limitMilliUSD":1,"period":"day","resetHour":24`), money + ".resetHour"},
	"an hour beyond 32 bits":     {budget(`"limitMilliUSD":1,"period":"day","resetHour":18446744073709551617`), money + ".resetHour"},
	"an empty lease":             {budget(`"limitMilliUSD":1,"period":"day","lease":{}`), money + ".lease.grantMilliUSD"},
	"a grant above the limit":    {budget(`"limitMilliUSD":1,"period":"day","lease":{"grantMilliUSD":2}`), money + ".lease.grantMilliUSD"},
	"an interval without a unit": {budget(`"limitMilliUSD":1,"period":"day","lease":{"grantMilliUSD":1,"renewInterval":"30"}`), money + ".lease.renewInterval"},
	"an interval of a number":    {budget(`"limitMilliUSD":1,"period":"day","lease":{"grantMilliUSD":1,"renewInterval":30}`), money + ".lease.renewInterval"},
	"an interval of zero":        {budget(`"limitMilliUSD":1,"period":"day","lease":{"grantMilliUSD":1,"renewInterval":"0s"}`), money + ".lease.renewInterval"},
	"no tiers in a list":         {budget(`"limitMilliUSD":1,"period":"day","tiers":[]`), money + ".tiers"},
	"a tier twice":               {budget(`"limitMilliUSD":1,"period":"day","tiers":[{"thresholdPercent":5},{"thresholdPercent":5}]`), money + ".tiers[1].thresholdPercent"},
	"a tier at zero":             {budget(`"limitMilliUSD":1,"period":"day","tiers":[{"thresholdPercent":0}]`), money + ".tiers[0].thresholdPercent"},
	"a tier without a threshold": {budget(`"limitMilliUSD":1,"period":"day","tiers":[{}]`), money + ".tiers[0].thresholdPercent"},
	"a tier above a hard cap":    {budget(`"limitMilliUSD":1,"hardCap":true,"period":"day","tiers":[{"thresholdPercent":101}]`), money + ".tiers[0].thresholdPercent"},
	"a tier that wraps":          {budget(`"limitMilliUSD":1,"period":"day","tiers":[{"thresholdPercent":4294967376}]`), money + ".tiers[0].thresholdPercent"},
	"too many tiers":             {budget(`"limitMilliUSD":1,"period":"day","tiers":[` + strings.Repeat(`{},`, 16) + `{}]`), money + ".tiers"},
	"a contact of two lines":     {budget(`"limitMilliUSD":1,"period":"day","adminContact":"a\nb"`), money + ".adminContact"},

	"an empty rate":             {rule(`"rate":{}`), ruled + ".rate"},
	"a rate not unlimited":      {rule(`"rate":{"unlimited":false}`), ruled + ".rate"},
	"a negative rate":           {rule(`"rate":{"rpm":1,"tpm":-1}`), ruled + ".rate.tpm"},
	"requests beside unlimited": {rule(`"rate":{"rpm":0,"unlimited":true}`), ruled + ".rate.rpm"},
	"tokens beside unlimited":   {rule(`"rate":{"tpm":0,"unlimited":true}`), ruled + ".rate.tpm"},
	"a null rate":               {rule(`"rate":{"rpm":null}`), ruled + ".rate.rpm"},
	"a quota without a limit":   {rule(`"tokenQuota":{"period":"day"}`), ruled + ".tokenQuota.limitTokens"},
	"a quota without a period":  {rule(`"tokenQuota":{"limitTokens":1}`), ruled + ".tokenQuota.period"},
	"a negative quota":          {rule(`"tokenQuota":{"limitTokens":-5,"period":"day"}`), ruled + ".tokenQuota.limitTokens"},
	"an unlimited quota":        {rule(`"tokenQuota":{"unlimited":true}`), ruled + ".tokenQuota.unlimited"},
	"no permits":                {rule(`"concurrency":{}`), ruled + ".concurrency.permits"},
	"negative permits":          {rule(`"concurrency":{"permits":-1}`), ruled + ".concurrency.permits"},
	"no models":                 {rule(`"modelAccess":{}`), ruled + ".modelAccess.allow"},
	"no models in a list":       {rule(`"modelAccess":{"allow":[]}`), ruled + ".modelAccess.allow"},
	"models in one text":        {rule(`"modelAccess":{"allow":"a,b"}`), ruled + ".modelAccess.allow"},
	"a model twice":             {rule(`"modelAccess":{"allow":["a","b","a"]}`), ruled + ".modelAccess.allow[2]"},
	"an empty model":            {rule(`"modelAccess":{"allow":["a",""]}`), ruled + ".modelAccess.allow[1]"},
	"a pattern":                 {rule(`"modelAccess":{"allow":["gpt-*"]}`), ruled + ".modelAccess.allow[0]"},
	"too many models":           {rule(`"modelAccess":{"allow":[` + strings.Repeat(`"a",`, 256) + `"a"]}`), ruled + ".modelAccess.allow"},

	"routing without tiers":     {routed(``), route + ".budgetTiers"},
	"routing by another budget": {routed(`"budget":"c","budgetTiers":[{"thresholdPercent":1,"substitutions":{"a":"b"}}]`), route + ".budget"},
	"routing by itself":         {routed(`"budget":"r","budgetTiers":[{"thresholdPercent":1,"substitutions":{"a":"b"}}]`), route + ".budget"},
	"no substitutions":          {routed(`"budgetTiers":[{"thresholdPercent":1,"substitutions":{}}]`), route + ".budgetTiers[0].substitutions"},
	"a threshold twice":         {routed(`"budgetTiers":[{"thresholdPercent":1,"substitutions":{"a":"b"}},{"thresholdPercent":1,"substitutions":{"c":"d"}}]`), route + ".budgetTiers[1].thresholdPercent"},
	"a model for itself":        {routed(`"budgetTiers":[{"thresholdPercent":1,"substitutions":{"a":"a"}}]`), route + ".budgetTiers[0].substitutions.a"},
	"a model for two":           {routed(`"budgetTiers":[{"thresholdPercent":1,"substitutions":{"gpt-4.1":"b","gpt-4.1":"c"}}]`), route + `.budgetTiers[0].substitutions["gpt-4.1"]`},
	"a chain":                   {routed(`"budgetTiers":[{"thresholdPercent":1,"substitutions":{"m/a":"b","b":"c"}}]`), route + `.budgetTiers[0].substitutions["m/a"]`},
	"a circle":                  {routed(`"budgetTiers":[{"thresholdPercent":2,"substitutions":{"b":"a"}},{"thresholdPercent":1,"substitutions":{"a":"b"}}]`), route + ".budgetTiers[0].substitutions"},
	"no model":                  {routed(`"budgetTiers":[{"thresholdPercent":1,"substitutions":{"a":""}}]`), route + ".budgetTiers[0].substitutions.a"},
	"a model of no name":        {routed(`"budgetTiers":[{"thresholdPercent":1,"substitutions":{"":"a"}}]`), route + ".budgetTiers[0].substitutions.?"},
	"a threshold of zero":       {routed(`"budgetTiers":[{"substitutions":{"a":"b"}}]`), route + ".budgetTiers[0].thresholdPercent"},
	"routing without a budget":  {rule(`"routing":{"budgetTiers":[{"thresholdPercent":1,"substitutions":{"a":"b"}}]}`), ruled + ".routing.budget"},
	"routing by one of two budgets": {wrap(`{"name":"a","failurePolicy":"FailOpen","budget":{"limitMilliUSD":1,"period":"day"}},{"name":"b","failurePolicy":"FailOpen","budget":{"limitMilliUSD":1,"period":"day"}},
		{"name":"r","failurePolicy":"FailOpen","routing":{"budgetTiers":[{"thresholdPercent":1,"substitutions":{"a":"b"}}]}}`), "documents[0].spec.rules[2].routing.budget"},
	"routing by what is unlimited": {wrap(`{"name":"a","failurePolicy":"FailOpen","budget":{"unlimited":true}},
		{"name":"r","failurePolicy":"FailOpen","routing":{"budgetTiers":[{"thresholdPercent":1,"substitutions":{"a":"b"}}]}}`), "documents[0].spec.rules[1].routing.budget"},

	"the third of three":            {`[` + budget(`"unlimited":true`) + `,` + budget(`"unlimited":true`) + `,` + budget(`"limitMilliUSD":1e2,"period":"day"`) + `]`, "documents[2].spec.rules[0].budget.limitMilliUSD"},
	"too deep":                      {strings.Repeat(`[`, 20) + strings.Repeat(`]`, 20), "documents" + strings.Repeat("[0]", 16)},
	"no UTF-8":                      {strings.Replace(budget(`"unlimited":true`), `"team":"t"`, "\"user\":\"\xff\"", 1), "documents"},
	"more than a document may hold": {wrap(`{"name":"r","failurePolicy":"FailOpen","modelAccess":{"allow":[` + models(256, 250) + `]}},{"name":"s","failurePolicy":"FailOpen","modelAccess":{"allow":[` + models(256, 250) + `]}}`), "documents[0]"},
}

// models writes a list of n models of so many bytes each.
func models(n, size int) string {
	var out []string
	for i := range n {
		out = append(out, fmt.Sprintf("%q", fmt.Sprintf("%0*d", size, i)))
	}
	return strings.Join(out, ",")
}
