"""The blocks of ipybox's page about sandboxes (docs/sandbox.md), with what it includes of examples/ and ipybox/kernel_mgr/."""

IMPORTS = """
from ipybox import CodeExecutionError, CodeExecutor, generate_mcp_sources
"""
STANDARD_LIBRARY = "from pathlib import Path\n"  # of examples/sandbox.py, of which the page shows parts

DEFAULT_SANDBOX = '''
async with CodeExecutor(sandbox=True) as executor:
    result = await executor.execute("print('hello world')")
    assert result.text == "hello world"

    code = """
    import requests
    try:
        requests.get('https://example.org')
    except Exception as e:
        print(e)
    """

    # Default sandbox config blocks internet access
    result = await executor.execute(code)
    assert "Failed to resolve 'example.org'" in result.text
'''

DEFAULT_JSON = """
{
  "allowPty": true,
  "enableWeakerNestedSandbox": false,
  "filesystem": {
    "denyRead": [".env"],
    "allowWrite": [".", "~/Library/Jupyter", "~/.ipython"],
    "denyWrite": []
  },
  "network": {
    "allowedDomains": [],
    "deniedDomains": [],
    "allowLocalBinding": true
  }
}
"""

KERNEL_JSON = """
{
    "enableWeakerNestedSandbox": false,
    "filesystem": {
      "denyRead": [".env"],
      "allowWrite": [".", "~/Library/Jupyter", "~/.ipython"],
      "denyWrite": []
    },
    "network": {
      "allowedDomains": ["example.org"],
      "deniedDomains": [],
      "allowLocalBinding": true
    }
  }
"""

CUSTOM_SANDBOX = '''
code = """
import requests
result = requests.get('https://example.org')
print(result.text)
"""
async with CodeExecutor(
    sandbox=True,
    sandbox_config=Path("examples/sandbox-kernel.json"),
    log_level="WARNING",
) as executor:
    result = await executor.execute(code)
    assert "Example Domain" in result.text
'''

FILESYSTEM_PARAMS = """
server_params = {
    "command": "srt",
    "args": [
        "--settings",
        "examples/sandbox-filesystem-mcp.json",
        "npx",
        "-y",
        "@modelcontextprotocol/server-filesystem",
        ".",
    ],
}
"""

FILESYSTEM_JSON = """
{
    "enableWeakerNestedSandbox": false,
    "filesystem": {
      "denyRead": [".env"],
      "allowWrite": [".", "~/.npm"],
      "denyWrite": []
    },
    "network": {
      "allowedDomains": ["npm-registry.example"],
      "deniedDomains": [],
      "allowLocalBinding": true
    }
  }
"""

FILESYSTEM_USAGE = '''
await generate_mcp_sources("filesystem", server_params, Path("mcptools"))

list_dir_code = """
from mcptools.filesystem.list_directory import run, Params
result = run(Params(path="."))
print(result.content)
"""

read_env_code = """
from mcptools.filesystem.read_file import run, Params
result = run(Params(path=".env"))
print(result.content)
"""

async with CodeExecutor(sandbox=True) as executor:
    # allowed by MCP server and sandbox
    result = await executor.execute(list_dir_code)
    assert "README.md" in result.text

    try:
        # allowed by MCP server but blocked by sandbox
        result = await executor.execute(read_env_code)
        assert False, "Read access to .env not blocked"
    except CodeExecutionError as e:
        assert "operation not permitted" in str(e)
'''

FETCH_PARAMS = """
server_params = {
    "command": "srt",
    "args": [
        "--settings",
        "examples/sandbox-fetch-mcp.json",
        "python",
        "-m",
        "mcp_server_fetch",
    ],
}
"""

FETCH_JSON = """
{
  "enableWeakerNestedSandbox": false,
  "filesystem": {
    "denyRead": [".env"],
    "allowWrite": [".", "~/.npm", "/tmp/**", "/private/tmp/**"],
    "denyWrite": []
  },
  "network": {
    "allowedDomains": ["npm-registry.example", "example.com"],
    "deniedDomains": [],
    "allowLocalBinding": true
  }
}
"""

FETCH_USAGE = '''
await generate_mcp_sources("fetch", server_params, Path("mcptools"))

fetch_code = """
from mcptools.fetch import fetch
result = fetch.run(fetch.Params(url="https://example.com"))
print(result)
"""

async with CodeExecutor(sandbox=True) as executor:
    result = await executor.execute(fetch_code)
    print(result.text)
    assert "This domain is for use in documentation examples" in result.text
'''
