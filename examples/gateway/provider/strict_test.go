package provider_test

import (
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/openai/openai-go/v3/packages/respjson"
	"github.com/stretchr/testify/require"

	anthropicjson "github.com/anthropics/anthropic-sdk-go/packages/respjson"
)

// requireStrict walks a decoded answer of an official SDK: it must have no field
// that the SDK does not know, and every field that the SDK calls required.
func requireStrict(t testing.TB, answer any) {
	t.Helper()
	var faults []string
	strict(reflect.ValueOf(answer), "$", &faults)
	require.Empty(t, faults, "the answer is not what the SDK knows")
}

func strict(v reflect.Value, path string, faults *[]string) {
	for v.Kind() == reflect.Pointer || v.Kind() == reflect.Interface {
		if v.IsNil() {
			return
		}
		v = v.Elem()
	}
	switch v.Kind() {
	case reflect.Slice:
		for i := range v.Len() {
			strict(v.Index(i), fmt.Sprintf("%s[%d]", path, i), faults)
		}
	case reflect.Struct:
		meta := v.FieldByName("JSON")
		if !meta.IsValid() {
			return
		}
		if variant := variantOf(v); variant.IsValid() { // a union: only its variant knows all fields
			strict(variant, path, faults)
			return
		}
		if extra := meta.FieldByName("ExtraFields"); extra.IsValid() {
			for _, name := range extra.MapKeys() {
				*faults = append(*faults, fmt.Sprintf("%s.%s: unknown field", path, name))
			}
		}
		for i := range v.NumField() {
			field := v.Type().Field(i)
			name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
			if field.Name == "JSON" || name == "-" || name == "" {
				continue
			}
			raw := rawOf(meta.FieldByName(field.Name))
			if raw == "" && field.Tag.Get("api") == "required" {
				*faults = append(*faults, fmt.Sprintf("%s.%s: required field is missing", path, name))
			}
			if raw != "" && raw != "null" {
				strict(v.Field(i), path+"."+name, faults)
			}
		}
	}
}

func rawOf(field reflect.Value) string {
	if !field.IsValid() {
		return ""
	}
	switch f := field.Interface().(type) {
	case respjson.Field:
		return f.Raw()
	case anthropicjson.Field:
		return f.Raw()
	}
	return ""
}

func variantOf(v reflect.Value) reflect.Value {
	method := v.MethodByName("AsAny")
	if !method.IsValid() && v.CanAddr() {
		method = v.Addr().MethodByName("AsAny")
	}
	if !method.IsValid() {
		return reflect.Value{}
	}
	return method.Call(nil)[0]
}
