"""Recipes for editors and their plugins."""

from __future__ import annotations

from localspec.cli.connections.recipe import Daemon, Json, Recipe, as_json


def _llama_vim(daemon: Daemon) -> str:
    return f"""let g:llama_config = {{
    \\ 'endpoint_fim': '{daemon.url}/infill',
    \\ 'endpoint_inst': '{daemon.url}/v1/chat/completions',
    \\ 'model_fim': '{daemon.model}',
    \\ 'model_inst': '{daemon.model}',
    \\ 'api_key': '{daemon.token}',
    \\ }}
"""


def _llama_vscode(daemon: Daemon) -> Json:
    return {
        "llama-vscode.endpoint": daemon.url,
        "llama-vscode.endpoint_chat": daemon.url,
        "llama-vscode.endpoint_tools": daemon.url,
        "llama-vscode.ai_model": daemon.model,
        "llama-vscode.api_key": daemon.token,
        "llama-vscode.api_key_chat": daemon.token,
        "llama-vscode.api_key_tools": daemon.token,
    }


def _zed(daemon: Daemon) -> Json:
    model = {
        "name": daemon.model,
        "display_name": daemon.model,
        "max_tokens": daemon.context or 32768,
        "capabilities": {
            "tools": True,
            "images": False,
            "parallel_tool_calls": True,
            "prompt_cache_key": True,
        },
    }
    server = {"api_url": f"{daemon.url}/v1", "available_models": [model]}
    return {"language_models": {"openai_compatible": {"LocalSpec": server}}}


def _continue(daemon: Daemon) -> str:
    return f"""name: LocalSpec
version: 0.0.1
schema: v1
models:
  - name: LocalSpec
    provider: openai
    model: {daemon.model}
    apiBase: {daemon.url}/v1
    apiKey: {daemon.token}
    roles: [chat, edit, apply, autocomplete]
"""


def _gptel(daemon: Daemon) -> str:
    return f"""(with-eval-after-load 'gptel
  (setq gptel-model '{daemon.model}
        gptel-backend (gptel-make-openai "LocalSpec"
                        :protocol "http" :host "localspec" :key "none" :stream t
                        :curl-args '("--unix-socket" "{daemon.socket}")
                        :models '({daemon.model}))))
"""


def _minuet(daemon: Daemon) -> str:
    return f"""require('minuet').setup({{
  provider = 'openai_fim_compatible',
  curl_extra_args = {{ '--unix-socket', '{daemon.socket}' }},
  provider_options = {{
    openai_fim_compatible = {{
      name = 'LocalSpec',
      api_key = 'TERM', -- any variable that is set: none is needed
      end_point = '{daemon.url}/v1/completions',
      model = '{daemon.model}',
      stream = true,
      optional = {{ max_tokens = 64 }},
    }},
  }},
}})
"""


def _codecompanion(daemon: Daemon) -> str:
    return f"""require('codecompanion').setup({{
  adapters = {{
    http = {{
      localspec = function()
        return require('codecompanion.adapters').extend('openai_compatible', {{
          env = {{ url = '{daemon.url}', api_key = 'TERM', chat_url = '/v1/chat/completions' }},
          raw = {{ '--unix-socket', '{daemon.socket}' }},
          schema = {{ model = {{ default = '{daemon.model}' }} }},
        }})
      end,
    }},
  }},
  strategies = {{ chat = {{ adapter = 'localspec' }}, inline = {{ adapter = 'localspec' }} }},
}})
"""


RECIPES = {
    "llama.vim": Recipe(
        "llama.vim", "block", _llama_vim, ".vimrc", comment='"',
        then="Start Vim anew.",
        redirects="Completions of every later Vim come from this computer.",
        places=(".vimrc", ".vim/vimrc", ".config/vim/vimrc"),
    ),
    "llama.vscode": Recipe(
        "llama.vscode", "json", as_json(_llama_vscode), ".config/Code/User/settings.json",
        redirects="llama.vscode asks this computer in every window from now on.",
    ),
    "zed": Recipe(
        "Zed", "json", as_json(_zed), ".config/zed/settings.json",
        then="Enter the token as the API key of LocalSpec in Zed's agent settings: {token}",
    ),
    "continue": Recipe(
        "Continue", "block", _continue, ".continue/assistants/localspec.yaml",
        then="Choose the assistant LocalSpec.",
    ),
    "gptel": Recipe(
        "gptel", "block", _gptel, ".emacs.d/init.el", tcp=False, comment=";;",
        then="Start Emacs anew.",
        redirects="gptel asks this computer by default from now on.",
        places=(".emacs", ".emacs.el", ".emacs.d/init.el", ".config/emacs/init.el"),
    ),
    "minuet": Recipe(
        "minuet-ai.nvim", "block", _minuet, ".config/nvim/after/plugin/localspec-minuet.lua",
        tcp=False, comment="--", redirects="minuet asks this computer from now on.",
    ),
    "codecompanion": Recipe(
        "codecompanion.nvim", "block", _codecompanion,
        ".config/nvim/after/plugin/localspec-codecompanion.lua", tcp=False, comment="--",
        redirects="Chats and edits of codecompanion go to this computer from now on.",
    ),
}  # fmt: skip
