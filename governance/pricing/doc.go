// Package pricing turns tokens into money: a catalogue of prices gives the
// [Row] of a model, and the Row gives the bound of a request before it is sent
// and the cost of what was used.
//
//	c, err := pricing.LoadLiteLLM("model_prices.json")
//	row, err := c.Price("gpt-5")
//	bound, err := row.Bound(pricing.Shape{InputTokens: n, Output: 1000, TextInput: true, TextOutput: true})
//	...
//	cost, state, err := row.Cost(reported)
//
// Prices are exact decimals when they are read and integers afterwards; a cost
// is rounded up once, at its end. A missing price, a missing window and an
// overflow are errors, never zero. Only a price that is stated to be zero is
// free.
//
// # Which fields of the catalogue are used
//
// Priced, each also with _above_<n>k_tokens (any n), _priority, _flex, _batches
// and both:
//
//	input_cost_per_token                        fresh input
//	output_cost_per_token                       output
//	output_cost_per_reasoning_token             reasoning, a part of output
//	cache_read_input_token_cost                 cache reads
//	input_cost_per_token_cache_hit              the same; if both are stated and differ, the entry is refused
//	cache_creation_input_token_cost             cache writes of the default lifetime
//	cache_creation_input_token_cost_above_1hr   cache writes of an hour or more
//	input_cost_per_audio_token                  audio, a part of input
//	cache_read_input_audio_token_cost           audio read from a cache: bounds only, no protocol here reports it
//	output_cost_per_audio_token                 audio, a part of output
//	input_cost_per_image_token                  images, a part of input
//	output_cost_per_image_token                 images, a part of output
//
// Priced otherwise:
//
//	search_context_cost_per_query               by the search, if the fee is one for all sizes; else searches cost Unknown
//	provider_specific_entry                     fast: times that for the fast mode; two letters: times that in that region
//	regional_processing_uplift_multiplier_<r>   times that if Options.Region is r; else reported
//
// Reported as [Unpriced]. A request that may use the medium has no bound
// (it is not text alone), unless a price per token is stated as well:
//
//	input_cost_per_character, output_cost_per_character
//	input_cost_per_second, input_cost_per_audio_per_second, output_cost_per_second
//	input_cost_per_image, output_cost_per_image
//	input_cost_per_video_per_second, output_cost_per_video_per_second, output_cost_per_video_token
//	cache_creation_input_audio_token_cost       audio together with cache writes costs Unknown
//
// Reported as [Unpriced]. A request with hosted tools has no bound, and usage
// with calls of them costs Unknown:
//
//	code_interpreter_cost_per_session, computer_use_input_cost_per_1k_tokens,
//	computer_use_output_cost_per_1k_tokens, file_search_cost_per_1k_calls,
//	file_search_cost_per_gb_per_day, vector_store_cost_per_gb_per_day,
//	google_search_cost_per_query
//
// Any other field whose name speaks of cost, price, fee or multiplier makes the
// entry [Refused], unless it is zero or [Options].Ignore names it. Also refused:
// entries without an input or output price (an embedding needs no output
// price), of a mode that is not charged by tokens, that make media charged in
// other units, that search on every call, with negative prices or prices that
// are no numbers, with names that occur twice. The [Report] names all of it.
//
// # What the catalogue leaves open
//
//   - A discount that is not stated is not given: a missing cache-read price is
//     the input price, a missing flex or batch price is the standard one.
//   - A surcharge that is not stated is not guessed: a missing priority or
//     long-context price makes usage there cost Unknown.
//   - Audio, images and reasoning without a price of their own are input or
//     output. Where their own price is missing for a tier or length, they are
//     input or output if the standard prices agree, else Unknown.
//   - Above a threshold, all tokens of the call have the higher price, output
//     included. The threshold counts all input, cached or not.
//   - Cache writes of unknown lifetime cost Unknown where the provider has
//     several lifetimes and they differ.
//   - Anthropic's priority tier is capacity bought ahead, but not on Bedrock: it has standard prices
//     unless the entry states others.
//   - A kind of token that was not broken out does not occur in an answer of
//     text. For models that make other things it costs Unknown.
//   - max_tokens is not used: it has meant the window and the output.
//
// Source: internal/docs/architecture.md "Units".
package pricing
