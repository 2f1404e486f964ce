/* Every ceiling that crosses a process boundary, each with its reason. */
#pragma once

#include <stddef.h>

/* A cell, as source text. Notebooks with embedded data reach some MB; more belongs in a file. */
#define CG_MAX_CODE (16u << 20)
/* One piece of stream text, to which the kernel splits longer writes: queues of them stay small. */
#define CG_MAX_STREAM (64u << 10)
/* Arguments, variables and folder of a command, each with a NUL: what Linux takes by default. */
#define CG_MAX_COMMAND_TEXT (2u << 20)
/* Input of a command that it has not read. */
#define CG_MAX_COMMAND_INPUT (1u << 20)
/* One display: a 20 MB image is 27 MB of base64. */
#define CG_MAX_DISPLAY (64u << 20)
/* Arguments of a tool call: a person must be able to judge them; a file's content must fit. */
#define CG_MAX_TOOL_ARGS (4u << 20)
/* Arguments of a question and code of the cell that asks: CG_MAX_TOOL_ARGS + CG_MAX_CODE. */
#define CG_MAX_APPROVAL_TEXT (20u << 20)
/* Questions in a list for other clients: more than a person decides. */
#define CG_MAX_APPROVALS 256u
/* Their depth: enough for any data; a server's parser survives it (Python's stops near 1000). */
#define CG_MAX_ARGS_DEPTH 256u
/*
 * Characters of one JSON number from a kernel. Parsers fail on longer ones or take quadratic time:
 * Python's json refuses integers of more than 4300 digits with an exception. A double has 767.
 */
#define CG_MAX_NUMBER 1000
/* Result of a tool call: images and files come as base64. */
#define CG_MAX_TOOL_RESULT (64u << 20)
/* Results of tool calls of more bytes stay with the tool server. */
#define CG_KEPT_RESULT (1u << 20)
/* One part of such a result. */
#define CG_MAX_RESULT_PART (1u << 20)
/* mcpServers definitions, and settings in general. */
#define CG_MAX_SETTINGS (1u << 20)
/* Definitions of all servers and host functions of a session: CG_MAX_SERVERS of CG_MAX_SETTINGS. */
#define CG_MAX_ALL_SETTINGS (64u << 20)
/* Definitions of one set of host functions. Escaped, as they travel, they fit CG_MAX_SETTINGS. */
#define CG_MAX_FUNCTIONS_TEXT (512u << 10)
/* One message of an MCP client to `cellgate mcp serve`: a cell of CG_MAX_CODE, with its escapes. */
#define CG_MAX_MCP_MESSAGE ((size_t)64 << 20)
/* Report about generated wrappers: 20,000 tools with a warning or two each. */
#define CG_MAX_REPORT (16u << 20)
/* Any other envelope. */
#define CG_MAX_BODY (1u << 20)
/* Frames of one message after the header: the body, and buffers of comm messages. */
#define CG_MAX_FRAMES 66
/* Cells waiting in one session. */
#define CG_MAX_QUEUE 256
/* Tool calls of one kernel under way at once; a further one waits in the kernel. */
#define CG_MAX_CALLS 256
/* Sessions of one supervisor: at about 10 MB each this is more than a machine holds. */
#define CG_MAX_SESSIONS 4096
/* Sessions of one client of a supervisor that others use as well. */
#define CG_MAX_CLIENT_SESSIONS 1024
/* Clients of such a supervisor in one process. */
#define CG_MAX_CLIENTS_OF_PROCESS 256
/* Sessions that a supervisor keeps ready ahead, at about 9 MB each. */
#define CG_MAX_SPARES 16
/* Bytes of events that the supervisor sends ahead of what the host has read, a session. */
#define CG_EVENT_WINDOW (8u << 20)
/* MCP servers of one session. */
#define CG_MAX_SERVERS 64
/* Name of an MCP server and of a tool, bytes. The protocol suggests 128; some tools go over it. */
#define CG_MAX_NAME 256

/* ---- limits of a sandbox ---- */

/*
 * id, field of session options and of sandboxes, units of the field in one unit of the setting,
 * name for programs, setting, unit of the setting, words in a sentence
 */
#define CG_LIMITS_TABLE(X) \
        X(MEMORY, memory_bytes, 1048576, "memory", "memoryMb", "MiB", "memory") \
        X(CORES, cores_milli, 1000, "cores", "cores", "cores", "processor") \
        X(PROCESSES, processes, 1, "processes", "processes", "processes", "process") \
        X(OPEN_FILES, open_files, 1, "openFiles", "openFiles", "files", "open file") \
        X(FILE_SIZE, file_bytes, 1048576, "fileSize", "fileMb", "MiB", "file size") \
        X(OUTPUT, output_bytes, 1048576, "output", "outputMb", "MiB", "output") \
        X(CPU_TIME, cpu_seconds, 1, "cpuTime", "cpuSeconds", "s", "processor time") \
        X(WALL_TIME, wall_seconds, 1, "wallTime", "wallSeconds", "s", "wall time")
