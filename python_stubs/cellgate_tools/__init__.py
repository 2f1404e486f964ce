"""Runtime of the modules that cellgate generates for the tools of MCP servers. Standard library only.

Generated modules import their classes' bases, Returns, Text, UNSET and bind from here. Programs that call
tools catch the errors:

    ToolRunnerError       base of all; .server, .tool, .kind and .message
      ParamsError         the arguments do not fit the tool's schema; nothing was sent
      ToolError           the tool reported an error (.result is the whole answer); base of the following
        RejectedError     the host did not approve the call (ApprovalTimeoutError: nobody decided in time)
        ProtocolError     the server answered with a JSON-RPC error
        UnavailableError  the call could not be carried out

and set options(timeout=..., strict=...) for the calls in a with block.
"""

from __future__ import annotations

from ._bind import Returns, bind
from ._errors import (
    ApprovalTimeoutError,
    ParamsError,
    ProtocolError,
    RejectedError,
    ToolError,
    ToolRunnerError,
    UnavailableError,
)
from ._kept import LargeText
from ._model import DictModel, Model, Open
from ._package import package
from ._result import Audio, Block, Image, Resource, ResourceLink, Text, TextBlock, ToolResult
from ._tool import options
from ._values import UNSET
from .catalogue import Lines, Match, Matches
from .resources import Contents, Listing, Message, Prompt, PromptArgument, PromptInfo, ResourceInfo, TemplateInfo

ApprovalRejectedError = RejectedError  # ipybox's name

__all__ = [
    "UNSET",
    "ApprovalRejectedError",
    "ApprovalTimeoutError",
    "Audio",
    "Block",
    "Contents",
    "DictModel",
    "Image",
    "LargeText",
    "Lines",
    "Listing",
    "Match",
    "Matches",
    "Message",
    "Model",
    "Open",
    "ParamsError",
    "Prompt",
    "PromptArgument",
    "PromptInfo",
    "ProtocolError",
    "RejectedError",
    "Resource",
    "ResourceInfo",
    "ResourceLink",
    "Returns",
    "TemplateInfo",
    "Text",
    "TextBlock",
    "ToolError",
    "ToolResult",
    "ToolRunnerError",
    "UnavailableError",
    "bind",
    "options",
    "package",
]

# Under the names that users see them by: in tracebacks, and for a host that looks for RejectedError.
for _cls in (
    *(ApprovalTimeoutError, ParamsError, ProtocolError, RejectedError, ToolError, ToolRunnerError, UnavailableError),
    *(Audio, Block, Image, LargeText, Resource, ResourceLink, Text, TextBlock, ToolResult),
    *(DictModel, Lines, Match, Matches, Model, Open),
    *(Contents, Listing, Message, Prompt, PromptArgument, PromptInfo, ResourceInfo, TemplateInfo),
):
    _cls.__module__ = __name__
del _cls
