"""AutoGen: blocks of Python are cells, blocks of shell commands run beside them."""

import asyncio
import tempfile

from autogen_agentchat.agents import ApprovalRequest, ApprovalResponse, CodeExecutorAgent
from autogen_agentchat.messages import TextMessage
from autogen_core import CancellationToken
from cellgate.integrations.autogen import CellgateCodeExecutor

# As a language model would write it.
CODE = """```python
x = 6 * 7
open("answer", "w").write(str(x))
```
```sh
cat answer
```"""


def approve(request: ApprovalRequest) -> ApprovalResponse:
    """A person reads request.code here."""
    return ApprovalResponse(approved=True, reason="it only computes")


async def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        async with CellgateCodeExecutor(folder) as executor:
            agent = CodeExecutorAgent("executor", executor, approval_func=approve)
            reply = await agent.on_messages([TextMessage(content=CODE, source="user")], CancellationToken())
            print(reply.chat_message.content)


asyncio.run(main())
