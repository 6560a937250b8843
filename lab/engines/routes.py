"""routes.py sglang|vllm: all routes of the installed engine's HTTP server, as lines
METHOD PATH. Run it with the engine's Python. They are those of the app, with all
that can be switched on (set VLLM_SERVER_DEV_MODE=1 and
VLLM_ALLOW_RUNTIME_LORA_UPDATING=True), and those that the source of its
entrypoints declares for other models and settings."""

import importlib.util
import pathlib
import re
import sys

TASKS = ("generate", "embed", "classify", "score", "token_embed", "token_classify", "transcription", "translation", "realtime", "render")
FLAGS = ["--enable-lora", "--enable-tokenizer-info-endpoint", "--enable-scale-out"]


def walk(routes, prefix=""):
    """Pairs of method and path, also of routers that an app includes."""
    for r in routes:
        inner = getattr(r, "original_router", None)
        if inner is not None:
            yield from walk(inner.routes, prefix + (getattr(getattr(r, "include_context", None), "prefix", "") or ""))
        elif methods := getattr(r, "methods", None):
            yield from ((m, prefix + r.path) for m in methods)
        else:
            yield ("WEBSOCKET" if "WebSocket" in type(r).__name__ else type(r).__name__.upper()), prefix + r.path


def app(engine):
    if engine == "sglang":
        from sglang.srt.entrypoints.http_server import app
        return app
    from vllm.entrypoints.launchers.cli_args import make_arg_parser
    from vllm.entrypoints.openai.api_server import build_app
    from vllm.utils.argparse_utils import FlexibleArgumentParser
    args = make_arg_parser(FlexibleArgumentParser()).parse_args(FLAGS)
    args.profiler_config.profiler = "torch"
    return build_app(args, TASKS, None)


def declared(engine):
    """Routes that decorators in the source name."""
    package = pathlib.Path(importlib.util.find_spec(engine).submodule_search_locations[0])
    folder = package / {"sglang": "srt/entrypoints", "vllm": "entrypoints"}[engine]
    one = re.compile(r'@\w*(?:app|router)\.(get|post|put|patch|delete|head|options|websocket|api_route)\(\s*"(/[^"]*)"([^)]*)')
    for file in folder.rglob("*.py"):
        for verb, path, rest in one.findall(file.read_text()):
            methods = re.findall(r'"([A-Z]+)"', rest) if verb == "api_route" else [verb.upper()]
            yield from ((m, path) for m in methods)


def main():
    engine = sys.argv[1]
    for method, path in sorted(set(walk(app(engine).routes)) | set(declared(engine)), key=lambda r: (r[1], r[0])):
        print(method, path)


if __name__ == "__main__":
    main()
