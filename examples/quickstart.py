# %% Cell 1: several tools in a loop, Python between the calls
# These are the cells of scripts/quickstart. They run in one sandboxed kernel, whose workspace is an empty folder; the
# MCP server "filesystem" works on another folder, in which these cells can write only by asking for tool calls.
from mcptools.filesystem import list_allowed_directories, list_directory, read_text_file

folder = list_allowed_directories.run().content.splitlines()[-1]
listing = list_directory.run(path=folder).content.splitlines()
sales = {}
for name in sorted(line.removeprefix("[FILE] ") for line in listing if line.startswith("[FILE] ")):
    text = read_text_file.run(path=f"{folder}/{name}").content
    sales[name.removesuffix(".txt")] = [int(number) for number in text.split()]
    print(f"read {name}: {len(text.split())} months")

# %% Cell 2: the first cell's variables are still there
totals = {region: sum(months) for region, months in sales.items()}
best = max(totals, key=totals.get)
report = f"best region: {best} with {totals[best]} of {sum(totals.values())}"
report

# %% Cell 3: a call that the host refuses is an exception here
from cellgate_tools import RejectedError
from mcptools.filesystem import write_file

try:
    write_file.run(path=f"{folder}/report.txt", content=report)
    print("write_file: written, because you approved it")
except RejectedError as error:
    print(f"write_file: refused by the host: {error}")

# %% Cell 4: and no way around it: the sandbox lets Python write in its workspace only
try:
    with open(f"{folder}/around.txt", "w") as file:
        file.write(report)
    print("open(): written OUTSIDE the workspace, the sandbox did not hold")
except OSError as error:
    print(f"open(): denied by the sandbox: {error}")
with open("report.txt", "w") as file:
    file.write(report)
print("report.txt is in the workspace")
