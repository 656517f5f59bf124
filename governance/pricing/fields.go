package pricing

import (
	"regexp"
	"strconv"
	"strings"
)

// stems are the catalogue's prices of tokens. Each can be followed by
// "_above_<n>k_tokens" and by the name of a tier.
var stems = map[string]class{
	"input_cost_per_token":                      input,
	"output_cost_per_token":                     output,
	"output_cost_per_reasoning_token":           reasoning,
	"cache_read_input_token_cost":               cacheRead,
	"input_cost_per_token_cache_hit":            cacheRead,
	"cache_creation_input_token_cost":           cacheWrite,
	"cache_creation_input_token_cost_above_1hr": cacheWriteLong,
	"input_cost_per_audio_token":                audioInput,
	"cache_read_input_audio_token_cost":         audioCacheRead,
	"output_cost_per_audio_token":               audioOutput,
	"input_cost_per_image_token":                imageInput,
	"output_cost_per_image_token":               imageOutput,
}

// stemOf is the reverse of stems, without synonyms.
var stemOf = func() (names [classes]string) {
	for name, c := range stems {
		if name != "input_cost_per_token_cache_hit" {
			names[c] = name
		}
	}
	return names
}()

var tierSuffix = [tiers]string{standard: "", priority: "_priority", flex: "_flex", batch: "_batches"}

// unit is a price of something that no token count gives.
type unit struct {
	media   uint64 // what it is charged for
	instead class  // the price per token that makes it an alternative, if stated
	none    bool   // there is no such price
	reason  string
}

var units = map[string]unit{
	"input_cost_per_character":              {instead: input, reason: "characters are not in a token count"},
	"output_cost_per_character":             {instead: output, reason: "characters are not in a token count"},
	"input_cost_per_second":                 {media: mediaAudioIn, instead: audioInput, reason: "seconds of audio are not in a token count"},
	"input_cost_per_audio_per_second":       {media: mediaAudioIn, instead: audioInput, reason: "seconds of audio are not in a token count"},
	"output_cost_per_second":                {media: mediaAudioOut, instead: audioOutput, reason: "seconds of audio are not in a token count"},
	"input_cost_per_image":                  {media: mediaImageIn, instead: imageInput, reason: "images are not in a token count"},
	"output_cost_per_image":                 {media: mediaImageOut, instead: imageOutput, reason: "images are not in a token count"},
	"input_cost_per_video_per_second":       {media: mediaVideoIn, none: true, reason: "seconds of video are not in a token count"},
	"output_cost_per_video_per_second":      {media: mediaVideoOut, none: true, reason: "seconds of video are not in a token count"},
	"output_cost_per_video_token":           {media: mediaVideoOut, none: true, reason: "no protocol reports video tokens"},
	"cache_creation_input_audio_token_cost": {media: 0, none: true, reason: "no protocol reports audio written to a cache; usage with audio and cache writes costs Unknown"},
}

// toolFees are charged by the call of a hosted tool. A request with hosted
// tools has no bound, and reported calls cost Unknown.
var toolFees = map[string]bool{
	"code_interpreter_cost_per_session":      true,
	"computer_use_input_cost_per_1k_tokens":  true,
	"computer_use_output_cost_per_1k_tokens": true,
	"file_search_cost_per_1k_calls":          true,
	"file_search_cost_per_gb_per_day":        true,
	"vector_store_cost_per_gb_per_day":       true,
	"google_search_cost_per_query":           true,
}

const (
	searchFee       = "search_context_cost_per_query"
	specificEntry   = "provider_specific_entry"
	regionPrefix    = "regional_processing_uplift_multiplier_"
	cacheHitSynonym = "input_cost_per_token_cache_hit"
)

var above = regexp.MustCompile(`_above_([0-9]{1,7})(k?)_tokens$`)

// place is where a field of the catalogue says that its price holds.
type place struct {
	class class
	tier  tier
	above int64 // tokens of input, 0: any length
}

// placeOf reads the name of a price per token.
func placeOf(name string) (place, bool) {
	p := place{}
	stem := name
	for tr := priority; tr < tiers; tr++ {
		if s, found := strings.CutSuffix(stem, tierSuffix[tr]); found {
			stem, p.tier = s, tr
			break
		}
	}
	stem, p.above = cutAbove(stem)
	c, ok := stems[stem]
	p.class = c
	return p, ok && p.above >= 0
}

// cutAbove splits a threshold off a name.
func cutAbove(name string) (stem string, tokens int64) {
	m := above.FindStringSubmatchIndex(name)
	if m == nil {
		return name, 0
	}
	n, err := strconv.ParseInt(name[m[2]:m[3]], 10, 64)
	if err != nil || n == 0 {
		return name, -1
	}
	if m[4] != m[5] {
		n *= 1000
	}
	return name[:m[0]], n
}

// fieldOf is the reverse of placeOf, for messages.
func fieldOf(c class, tr tier, above int64) string {
	name := stemOf[c]
	switch {
	case above > 0 && above%1000 == 0:
		name += "_above_" + strconv.FormatInt(above/1000, 10) + "k_tokens"
	case above > 0:
		name += "_above_" + strconv.FormatInt(above, 10) + "_tokens"
	}
	return name + tierSuffix[tr]
}

// costly reports whether the name of a field speaks of money. Fields that do
// not are none of this package's business.
func costly(name string) bool {
	for _, word := range [...]string{"cost", "pric", "multiplier", "fee"} {
		if strings.Contains(name, word) {
			return true
		}
	}
	return name == specificEntry
}
