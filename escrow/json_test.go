package escrow_test

import (
	"encoding/json"
	"errors"
	"reflect"
	"strings"
	"testing"

	"github.com/tallystick-go/tallystick/escrow"
)

func TestMessagesComeBackAsTheyWere(t *testing.T) {
	h, a := sample(t)
	empty := &escrow.Heartbeat{Node: "n", Boot: bootID(1), BootNumber: 1, Sequence: 1, Bye: true}
	for _, h := range []*escrow.Heartbeat{h, empty} {
		text, err := json.Marshal(h)
		if err != nil {
			t.Fatal(err)
		}
		var back escrow.Heartbeat
		if err := json.Unmarshal(text, &back); err != nil || !reflect.DeepEqual(&back, h) {
			t.Errorf("%s\nis %+v, %v", text, back, err)
		}
	}
	text, err := json.Marshal(a)
	if err != nil {
		t.Fatal(err)
	}
	var back escrow.Answer
	if err := json.Unmarshal(text, &back); err != nil || back.Documents.Generation() != a.Documents.Generation() {
		t.Fatal(err)
	}
	if err := back.Verify(h); err != nil {
		t.Error(err)
	}
	back.Documents = a.Documents
	if !reflect.DeepEqual(&back, a) {
		t.Errorf("%s\nis %+v", text, back)
	}
}

// What is wrong with a heartbeat is told with its place.
func TestHeartbeatNamesThePlace(t *testing.T) {
	h, _ := sample(t)
	text := string(h.AppendJSON(nil))
	for _, c := range []struct{ old, new, place string }{
		{`"protocol":"escrow-v1"`, `"protocol":"escrow-v2"`, "protocol"},
		{`"protocol":"escrow-v1",`, ``, "protocol"},
		{`"node":"node-1"`, `"node":"node 1"`, "node"},
		{`"node":"node-1"`, `"node":"n\u0000"`, "node"},
		{`"node":"node-1"`, `"node":""`, "node"},
		{`"node":"node-1"`, `"node":null`, "node"},
		{`"node":"node-1"`, `"node":"` + strings.Repeat("n", 129) + `"`, "node"},
		{`"boot_number":3`, `"boot_number":3,"boot_number":3`, "boot_number"},
		{`"boot_number":3`, `"boot_number":0`, "boot_number"},
		{`"boot_number":3`, `"boot_number":3.0`, "boot_number"},
		{`"boot_number":3`, `"Boot_number":3`, `["Boot_number"]`},
		{`"boot":"0`, `"boot":"g`, "boot"},
		{`"sequence":9`, `"sequence":9223372036854775808`, "sequence"},
		{`"answered":8`, `"answered":9`, "answered"},
		{`"revision":7`, `"revision":0`, "mark.revision"},
		{`"revision":7`, `"revision":-0`, "mark.revision"},
		{`"reports":[`, `"reports":[{},`, "reports[0].grant"},
		{`"reports":[{`, `"reports":[{"more":1,`, "reports[0].more"},
		{`"consumed_microusd":10`, `"consumed_microusd":-1`, "reports[0].consumed_microusd"},
		{`"consumed_microusd":10`, `"consumed_microusd":9223372036854775800`, "reports[0]"},
		{`"ending":"closed"`, `"ending":"Closed"`, "reports[1].ending"},
		{`"grant":"` + grantID(2).String(), `"grant":"` + grantID(1).String(), "reports[1]"},
		{`"grant":"` + grantID(2).String(), `"grant":"` + strings.ToUpper(grantID(2).String()), "reports[1].grant"},
		{`"id":"` + grantID(5).String(), `"id":"` + grantID(4).String(), "requests[0]"},
		{`"pending_microusd":4`, `"pending_microusd":true`, "meters[0].pending_microusd"},
		{`,"pending_microusd":4`, ``, "meters[0].pending_microusd"},
		{`"amount_microusd":50`, `"amount_microusd":4`, "requests[0].least_microusd"},
		{`"amount_microusd":50`, `"amount_microusd":0`, "requests[0].amount_microusd"},
		{`"least_microusd":5`, `"least_microusd":0`, "requests[0].least_microusd"},
		{`"policy":"p"`, `"policy":"*"`, "meters[0].account.policy"},
		{`,"team":"a"`, ``, "meters[0].account.team"},
		{`"period":"day"`, `"period":"year"`, "meters[0].account.period"},
		{`"end_us":`, `"end_us":9`, "meters[0].account.end_us"},
		{`\"quoted\"`, `\u202e`, "requests[1].account.user"},
		{`"bye":false`, `"bye":true`, "requests"},
		{`"bye":false`, `"bye":0`, "bye"},
		{`,"bye":false`, ``, "bye"},
		{`"bye":false}`, `"bye":false}{}`, ""},
		{`"bye":false`, `"bye":false,"sixteen":[[[]]]`, "sixteen"},
	} {
		changed := strings.Replace(text, c.old, c.new, 1)
		if changed == text {
			t.Errorf("%s does not occur in %s", c.old, text)
			continue
		}
		var back escrow.Heartbeat
		err := back.UnmarshalJSON([]byte(changed))
		var e *escrow.Error
		if !errors.As(err, &e) || e.Field != c.place {
			t.Errorf("%.60s in place of %s: %v, want it at %s", c.new, c.old, err, c.place)
		}
		if !reflect.DeepEqual(back, escrow.Heartbeat{}) {
			t.Errorf("%s was taken in part", c.new)
		}
	}
}

// A list that is missing is not an empty one.
func TestAnswerNamesThePlace(t *testing.T) {
	_, a := sample(t)
	text := string(a.AppendJSON(nil))
	for _, c := range []struct{ old, new, place string }{
		{`"documents":[{`, `"documents":[{"more":1,`, "documents[0].more"},
		{`"documents":[{`, `"documents":{"a":[{`, ""},
		{`"documents":`, `"document":`, "document"},
		{`"definitions":[`, `"definitions":null,"grants":[`, "definitions"},
		{`"budgets":[`, `"budgets":[],"denials":[`, "denials[0].consumed\x00"},
		{`"grants":[`, `"grants":[{},`, "grants[0].id"},
		{`"latch_percent":90`, `"latch_percent":1001`, "budgets[0].latch_percent"},
		{`"latch_percent":90`, `"latch_percent":4294967386`, "budgets[0].latch_percent"},
		{`"reason":"unknown"`, `"reason":"none"`, "denials[0].reason"},
		{`"left_microusd":4`, `"left_microusd":-4`, "denials[0].left_microusd"},
		{`"renew_ms":1000`, `"renew_ms":0`, "definitions[0].renew_ms"},
		{`"renew_ms":1000`, `"renew_ms":9223372036854775807`, "definitions[0].renew_ms"},
		{`"limit_microusd":1000000`, `"limit_microusd":-1`, "definitions[0].limit_microusd"},
		{`"late":true`, `"late":"true"`, "receipts[2].late"},
		{`"amount_microusd":50`, `"amount_microusd":0`, "grants[0].amount_microusd"},
		{`"expires_at_us":`, `"expires_at_us":9`, "grants[0].expires_at_us"},
		{`"now_us":`, `"now_us":-`, "now_us"},
		{`"id":"` + grantID(6).String(), `"id":"` + grantID(5).String(), "denials[0]"},
	} {
		changed := strings.Replace(text, c.old, c.new, 1)
		var back escrow.Answer
		err := back.UnmarshalJSON([]byte(changed))
		var e *escrow.Error
		if changed == text || !errors.As(err, &e) || (e.Field != c.place && !strings.Contains(c.place, "\x00")) {
			t.Errorf("%.60s in place of %s: %v, want it at %s", c.new, c.old, err, c.place)
		}
	}
	for _, list := range []string{"definitions", "budgets", "grants", "denials", "receipts"} {
		var fields map[string]json.RawMessage
		if err := json.Unmarshal([]byte(text), &fields); err != nil {
			t.Fatal(err)
		}
		delete(fields, list)
		short, err := json.Marshal(fields)
		if err != nil {
			t.Fatal(err)
		}
		var back escrow.Answer
		var e *escrow.Error
		if err := back.UnmarshalJSON(short); !errors.As(err, &e) || e.Field != list || e.Why != "is missing" {
			t.Errorf("without %s: %v", list, err)
		}
	}
}

func TestListsAreBounded(t *testing.T) {
	h, _ := sample(t)
	h.Requests = nil
	for i := range escrow.MaxRequests + 1 {
		h.Requests = append(h.Requests, escrow.Request{ID: grantID(1000 + i), Account: h.Meters[0].Account, Amount: 1, Least: 1})
	}
	var back escrow.Heartbeat
	var e *escrow.Error
	if err := back.UnmarshalJSON(h.AppendJSON(nil)); !errors.As(err, &e) || e.Field != "requests" {
		t.Error(err)
	}
	h.Requests = h.Requests[:escrow.MaxRequests]
	if err := back.UnmarshalJSON(h.AppendJSON(nil)); err != nil {
		t.Error(err)
	}
	if err := back.UnmarshalJSON(make([]byte, escrow.MaxHeartbeatBytes+1)); !errors.As(err, &e) {
		t.Error(err)
	}
}

// Whatever the input, it is refused with an *Error, or reads back as itself.

func FuzzHeartbeat(f *testing.F) {
	h, _ := sample(f)
	f.Add(h.AppendJSON(nil))
	f.Add((&escrow.Heartbeat{Node: "n", Boot: bootID(1), BootNumber: 1, Sequence: 1}).AppendJSON(nil))
	f.Fuzz(func(t *testing.T, data []byte) {
		var h, back escrow.Heartbeat
		if err := h.UnmarshalJSON(data); err != nil {
			var e *escrow.Error
			if !errors.As(err, &e) || !reflect.DeepEqual(h, escrow.Heartbeat{}) {
				t.Fatal(err)
			}
			return
		}
		if err := back.UnmarshalJSON(h.AppendJSON(nil)); err != nil || !reflect.DeepEqual(back, h) {
			t.Fatalf("%+v, %v is not %+v", back, err, h)
		}
	})
}

func FuzzAnswer(f *testing.F) {
	_, a := sample(f)
	f.Add(a.AppendJSON(nil))
	f.Fuzz(func(t *testing.T, data []byte) {
		var a, back escrow.Answer
		if err := a.UnmarshalJSON(data); err != nil {
			var e *escrow.Error
			if !errors.As(err, &e) {
				t.Fatal(err)
			}
			return
		}
		text := a.AppendJSON(nil)
		if err := back.UnmarshalJSON(text); err != nil || string(back.AppendJSON(nil)) != string(text) {
			t.Fatalf("%s: %v", text, err)
		}
	})
}
