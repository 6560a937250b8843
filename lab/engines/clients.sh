# Clients of others, each run as its users run it against one URL, with several
# adapters. Sourced; each function takes the URL and a folder for its files, and
# fails unless the client's own summary says that every request succeeded and
# lorasim compare reads the same from its file.
#
#   TOKENIZER   folder of the model's tokenizer
#   SGLANG      Python with sglang (bench_serving, also --rust-client)
#   VLLM        vllm (bench serve)
#   AIPERF, GUIDELLM   their programs
#   LORASIM     lorasim; default: the one on the path
#
# Versions that these were made for: sglang 0.5.23, vLLM 0.32.0, AIPerf 0.13.0,
# GuideLLM 0.8.1.

ADAPTERS=${ADAPTERS:-lora0 lora1 lora2 lora3}
REQUESTS=${REQUESTS:-40}
RATE=${RATE:-8}
LORASIM=${LORASIM:-lorasim}
export HF_HUB_OFFLINE=1 TRANSFORMERS_OFFLINE=1 VLLM_NO_USAGE_STATS=1 DO_NOT_TRACK=1

# completed FILE N [MIN]: lorasim compare reads N successful requests (at least MIN,
# and at most N), all in all, and no failure, from a client's file.
completed() {
	"$LORASIM" compare --all --json "$1" >"$1.compared" || return 1
	python3 - "$1.compared" "${3:-$2}" "$2" <<'EOF'
import json, sys
total = {m["metric"]: sum(r["mean"] for r in m["runs"].values()) for m in json.load(open(sys.argv[1]))["metrics"]}
done = total.get("completed", 0)
lost = sum(total.get("ended." + k, 0) for k in ("failed", "rejected", "aborted"))
if not int(sys.argv[2]) <= done <= int(sys.argv[3]) or lost:
    sys.exit(f"{done} of {sys.argv[3]} requests succeeded, {lost} did not")
EOF
}

# sglang URL N FILE [FLAG...]: N requests of its native interface.
sglang() {
	local url=$1 n=$2 file=$3
	shift 3
	"$SGLANG" -m sglang.bench_serving --backend sglang --base-url "$url" --dataset-name random-ids --model "$TOKENIZER" --tokenizer "$TOKENIZER" \
		--num-prompts "$n" --request-rate "$RATE" --random-input-len 40 --random-output-len 12 --random-range-ratio 0.5 \
		--output-file "$file.jsonl" "$@" >"$file.log" 2>&1 && grep -q "^Successful requests: *$n *\$" "$file.log"
}

# client_sglang URL DIR: adapters drawn unevenly.
client_sglang() {
	rm -f "$2/sglang.jsonl"
	sglang "$1" "$REQUESTS" "$2/sglang" --lora-name $ADAPTERS --lora-request-distribution skewed && completed "$2/sglang.jsonl" "$REQUESTS"
}

# client_sglang_rust URL DIR: one adapter after the other, as it has no --lora-name.
client_sglang_rust() {
	local a n=0
	rm -f "$2/sglang-rust.jsonl"
	for a in $ADAPTERS; do
		sglang "$1" 10 "$2/sglang-rust" --rust-client --flush-cache --extra-request-body "{\"lora_path\": \"$a\"}" || return 1
		n=$((n + 10))
	done
	completed "$2/sglang-rust.jsonl" $n
}

# client_vllm URL DIR: completions, adapters by their names.
client_vllm() {
	rm -f "$2/vllm.json"
	"$VLLM" bench serve --backend openai --base-url "$1" --endpoint /v1/completions --model base --tokenizer "$TOKENIZER" --dataset-name random \
		--num-prompts "$REQUESTS" --request-rate "$RATE" --random-input-len 40 --random-output-len 12 --engine-args ignore_eos --lora-modules $ADAPTERS \
		--save-result --save-detailed --result-dir "$2" --result-filename vllm.json >"$2/vllm.log" 2>&1 || return 1
	grep -q "^Successful requests: *$REQUESTS *\$" "$2/vllm.log" && grep -q "^Failed requests: *0 *\$" "$2/vllm.log" && completed "$2/vllm.json" "$REQUESTS"
}

# client_aiperf URL DIR: adapters as models, in turn. Told to stay offline it does
# not take a tokenizer from a folder.
client_aiperf() {
	local models=() a
	for a in $ADAPTERS; do models+=(--model "$a"); done
	rm -rf "$2/aiperf"
	env -u HF_HUB_OFFLINE -u TRANSFORMERS_OFFLINE "$AIPERF" profile --url "$1" "${models[@]}" --model-selection-strategy round_robin \
		--endpoint-type completions --streaming --tokenizer "$TOKENIZER" --request-count "$REQUESTS" --request-rate "$RATE" --isl 40 --osl 12 \
		--extra-inputs ignore_eos:true --artifact-dir "$2/aiperf" --ui none >"$2/aiperf.log" 2>&1 || return 1
	completed "$2/aiperf/profile_export_aiperf.json" "$REQUESTS" && completed "$2/aiperf/profile_export.jsonl" "$REQUESTS"
}

# client_guidellm URL DIR: one adapter after the other, as it takes one model. It
# may end while its last request is under way, and leaves that one out.
client_guidellm() {
	local a
	for a in $ADAPTERS; do
		rm -f "$2/guidellm-$a.json"
		"$GUIDELLM" run --backend "kind=openai_http,target=$1,model=$a,request_format=/v1/completions" --tokenizer "kind=hf_auto,model=$TOKENIZER" \
			--profile "kind=constant,rate=$RATE" --constraint kind=max_requests,count=10 --data kind=synthetic_text,prompt_tokens=40,output_tokens=12 \
			--output "kind=json,path=$2/guidellm-$a.json" --disable-console-interactive >"$2/guidellm-$a.log" 2>&1 || return 1
		completed "$2/guidellm-$a.json" 10 9 || return 1
	done
}

# clients URL DIR [CLIENT...]: those named, or all (a vLLM worker has no interface
# for sglang's), and what became of them.
clients() {
	local url=$1 dir=$2 c need lost=0
	shift 2
	mkdir -p "$dir"
	[ $# -gt 0 ] || set -- sglang sglang_rust vllm aiperf guidellm
	for c in "$@"; do
		case $c in sglang*) need=SGLANG ;; *) need=${c^^} ;; esac
		if ! command -v "${!need:-/nowhere}" >/dev/null; then
			echo "skip $c: $need is not set"
		elif "client_$c" "$url" "$dir"; then
			echo "ok   $c"
		else
			echo "FAIL $c (see $dir)"
			lost=1
		fi
	done
	return $lost
}
