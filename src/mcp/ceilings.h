/* Ceilings of the MCP client. What a server says may be hostile or merely careless. */
#pragma once

#include "base/ceilings.h"

/* --- messages of a server --- */

/*
 * One line. It is in memory until it has been read; results of more than CG_MAX_TOOL_RESULT reach
 * the kernel in parts.
 */
#define CG_MCP_MAX_LINE ((size_t)256 << 20)
/* Members of a JSON-RPC message: it has five, and duplicates are looked for among them. */
#define CG_MCP_MAX_MEMBERS 32u
/* An id that is echoed: whatever a sane server counts with. */
#define CG_MCP_MAX_ID 256u
/* Bytes that wait until a server reads its standard input, and a piece's cost beside its bytes. */
#define CG_MCP_MAX_SENDQ ((size_t)64 << 20)
#define CG_MCP_SEND_COST 512u
/*
 * Above so much nothing is added but calls: a server that floods us with requests and reads no
 * answer fills no memory.
 */
#define CG_MCP_MAX_ANSWERS ((size_t)1 << 20)

/* --- tool lists --- */

#define CG_MCP_MAX_PAGES 1000u
/* The generator's own ceiling for a list. */
#define CG_MCP_MAX_LIST  ((size_t)CG_MAX_TOOL_RESULT)
#define CG_MCP_MAX_TOOLS 20000u
/* A cursor is opaque, and sent back. */
#define CG_MCP_MAX_CURSOR ((size_t)64 << 10)
/* A list of resources, templates or prompts: it is kept until it changes. */
#define CG_MCP_MAX_KEPT_LIST ((size_t)8 << 20)
/* The URI of a resource that is read; over HTTP it is a header too. */
#define CG_MCP_MAX_URI ((size_t)8 << 10)
/* Tools that are compared with a misspelt name. */
#define CG_MCP_MAX_CLOSE_TOOLS 1000u

/* --- pinned tools --- */

/* A file of pins. Where it would be larger, the tools' texts are left out, and digests stay. */
#define CG_PINS_MAX_FILE ((size_t)16 << 20)
/* The last list of a server's tools: a longer one is not stored, and the server always started. */
#define CG_PINS_MAX_LIST ((size_t)16 << 20)
/* Definitions of servers whose pins cannot be written, and are kept in memory. */
#define CG_PINS_MAX_UNRECORDED 256u
/* A tool's text that is kept, to show what has changed. */
#define CG_PINS_MAX_TEXT ((size_t)256 << 10)
/* Files that `cellgate mcp accept` looks through. */
#define CG_PINS_MAX_FILES 4096u
/*
 * Longest waits for another process that changes the same file: of the tool server, whose event
 * loop waits and which writes the pins after a later list, and of a person who accepts.
 */
#define CG_PINS_LOCK_MS        200
#define CG_PINS_ACCEPT_LOCK_MS 2000
/* Text about one changed tool: in a notice, and where a person is asked, who must see all of it. */
#define CG_PINS_MAX_DIFF  ((size_t)4 << 10)
#define CG_PINS_MAX_SHOWN ((size_t)8 << 20)
/* Text about one list of tools. */
#define CG_PINS_MAX_NOTICE ((size_t)16 << 10)

/* --- arguments from a kernel --- */

/* Arguments of one kernel's calls that wait: 256 calls of 4 MB each would be a gigabyte. */
#define CG_MCP_MAX_ARGS_WAITING ((size_t)64 << 20)

/* --- results that stay with the tool server --- */

/* Strings of fewer bytes are sent to the kernel at once. */
#define CG_MCP_KEPT_STRING ((size_t)64 << 10)
/* Open files that one kernel keeps, that all keep, and bytes in them. */
#define CG_MCP_MAX_KEPT           64u
#define CG_MCP_MAX_KEPT_BYTES     ((size_t)1 << 30)
#define CG_MCP_MAX_ALL_KEPT       1024u
#define CG_MCP_MAX_ALL_KEPT_BYTES ((size_t)4 << 30)
/*
 * Larger ones are converted beside the event loop, in a copy each. Where the copies together would
 * be larger, the loop waits.
 */
#define CG_MCP_CONVERT_AT_ONCE ((size_t)4 << 20)
#define CG_MCP_MAX_CONVERTING  ((size_t)512 << 20)

/* --- queues of the tool server --- */

/*
 * Results that a kernel has not read. What comes on top becomes a short failure. Above half of it
 * the kernel's messages wait: the rest is room for answers to them.
 */
#define CG_MCP_MAX_KERNEL_QUEUE ((size_t)128 << 20)
/* Messages that the supervisor has not read. Above it calls fail without being asked about. */
#define CG_MCP_MAX_BROKER_QUEUE ((size_t)256 << 20)

/* --- logging of what servers print --- */

#define CG_MCP_LOG_LINE  1000u /* bytes of one line */
#define CG_MCP_LOG_LINES 100u  /* lines of one server and second; the rest is counted */
/* The last of what a server wrote to standard error, logged when it fails; bytes of each line. */
#define CG_MCP_STDERR_KEPT ((size_t)64 << 10)
#define CG_MCP_STDERR_LINE ((size_t)2000)
/* The last lines of it that the error shows, which agents read: bytes of each, and of all. */
#define CG_MCP_STDERR_SHOWN_LINE ((size_t)200)
#define CG_MCP_STDERR_SHOWN      ((size_t)600)

/* --- HTTP --- */

#define CG_HTTP_MAX_HEAD   ((size_t)64 << 10)
#define CG_HTTP_CONNECT_MS 30000
/* Bytes of a body that wait while their receiver is paused, besides libcurl's own buffers. */
#define CG_HTTP_MAX_HELD ((size_t)256 << 10)
/* The id of a server-sent event, which is sent back in a header. */
#define CG_SSE_MAX_ID 1024
/* A server may ask for so long a wait before a stream is taken up again. */
#define CG_SSE_MAX_RETRY_MS 600000
/* Connections of one server: more requests than these wait for a connection. */
#define CG_HTTP_MAX_CONNECTIONS 256
#define CG_HTTP_MAX_REDIRECTS   5
/* Bytes that are kept of a response that reports an error. */
#define CG_HTTP_MAX_ERROR ((size_t)64 << 10)
/* Unfinished answers of one server together: each of 256 calls may have one of CG_MCP_MAX_LINE. */
#define CG_HTTP_MAX_UNFINISHED ((size_t)512 << 20)
/* Memory that a stream of events keeps for the next one. */
#define CG_SSE_KEPT ((size_t)64 << 10)
/* Responses that a server leaves open after the answer. */
#define CG_HTTP_MAX_LINGERING 16
#define CG_MCP_MAX_SESSION_ID 1024u
/* Memory of a message that waits for its response of HTTP, beside its bytes. */
#define CG_MCP_POST_COST ((size_t)16 << 10)
/* Attempts in a row to take up a stream that brings no event. */
#define CG_MCP_MAX_RETRIES 5
/*
 * In a call that is sent again with answers: the server's state, and all that is added to the call:
 * the state, an answer to each question that may wait for the host, their keys, and short answers.
 */
#define CG_MCP_MAX_STATE ((size_t)1 << 20)
#define CG_MCP_MAX_MORE  (CG_MCP_MAX_STATE + (CG_MCP_MAX_QUESTIONS + 8) * CG_MAX_BODY)
/* Arguments that are repeated in headers: how many, how deep, and how long a header is. */
#define CG_MCP_MAX_PARAM_HEADERS 64u
#define CG_MCP_MAX_PARAM_DEPTH   32u
#define CG_MCP_MAX_PARAM_VALUE   8192u
/* Memory for their names and those of the properties around them: of one tool, and of a list. */
#define CG_MCP_MAX_PARAM_NAMES      ((size_t)32 << 10)
#define CG_MCP_MAX_LIST_PARAM_NAMES ((size_t)4 << 20)
/* Things that the answer to a call may ask for at once. */
#define CG_MCP_MAX_INPUTS 64u
/* Questions of one server that wait for the host, and all of one call. */
#define CG_MCP_MAX_QUESTIONS      8u
#define CG_MCP_MAX_CALL_QUESTIONS 32u
/* Rounds of questions (revision 2026-07-28) before a call is given up. */
#define CG_MCP_MAX_ROUNDS 10

/* --- OAuth --- */

#define CG_OAUTH_MAX_URL        2048
#define CG_OAUTH_MAX_TOKEN      16384u /* token, client id, secret; servers take heads of 8 to 64 KB */
#define CG_OAUTH_MAX_SCOPES     4096u  /* all of them, with the spaces between them */
#define CG_OAUTH_MAX_DOCUMENT   ((size_t)256 << 10)
#define CG_OAUTH_MAX_FORM       ((size_t)128 << 10) /* a token request, and the URL of an authorization */
#define CG_OAUTH_MAX_RECORD     ((size_t)512 << 10) /* what is stored of one server */
#define CG_OAUTH_MAX_RECORDS    4096u
#define CG_OAUTH_MAX_LIFETIME_S 315360000 /* ten years: a longer life counts as not given */
#define CG_OAUTH_MAX_REDIRECTS  3         /* of one document, within its origin */
#define CG_OAUTH_CONNECT_MS     10000
#define CG_OAUTH_FETCH_MS       30000
/* All that the tool server does for one token: some requests, and the wait for other processes. */
#define CG_OAUTH_WORK_MS 60000
#define CG_OAUTH_LOCK_MS CG_OAUTH_WORK_MS
/* All requests that revoke the tokens of a logout. */
#define CG_OAUTH_REVOKE_MS 15000
/* A token is refreshed when the rest of its life is shorter: clocks differ, and calls take time. */
#define CG_OAUTH_EARLY_S 30

/* --- progress of calls --- */

/* A message of more bytes is left out, and so many are shown. */
#define CG_MCP_MAX_PROGRESS_TEXT  4096u
#define CG_MCP_SHOW_PROGRESS_TEXT 500u
/* The longest wait of an error for the report of its server's sandbox. */
#define CG_MCP_SYNC_MS 5000
/* Between two reports of one call. */
#define CG_MCP_CALL_PROGRESS_MS 100
/*
 * A call without a time limit is reported when it has neither ended nor progressed for so long, and
 * again after twice the time.
 */
#define CG_MCP_SILENT_MS 30000
/* The beginning of a line of standard output that was skipped, for that report. */
#define CG_MCP_SKIPPED_SHOWN 160u

/* --- calls at once --- */

#define CG_MCP_MAX_CONCURRENCY 1000 /* "maxConcurrency" */

/* --- times, milliseconds --- */

#define CG_MCP_MAX_START_S 3600     /* "startTimeout" */
#define CG_MCP_MAX_CALL_MS 86400000 /* "timeout" */
/* A question of a server to the host, where its definition has no "timeout". */
#define CG_MCP_QUESTION_MS 3600000
/* A server that has not answered for so long is reported, and again at these intervals. */
#define CG_MCP_PROGRESS_MS       2000
#define CG_MCP_PROGRESS_EVERY_MS 5000
#define CG_MCP_START_MS          60000 /* initialize and tools/list: npx may have to download it first */
/*
 * A stdio server that has not answered server/discover is sent initialize, and whatever it answers
 * first decides: a server that is only slow to start loses nothing by a short time.
 */
#define CG_MCP_PROBE_MS 1000
/* Before a stream is taken up again where the server says nothing, and between further attempts. */
#define CG_MCP_RETRY_MS 1000
/* A longer time, which the kernel may choose, counts as this one: 10 years. */
#define CG_MCP_MAX_TIMEOUT_MS 315360000000
#define CG_MCP_LISTEN_MS      10000 /* between two attempts to listen to changes */
/*
 * Between two lists of a server that announces changes again and again. Lists that cells cause
 * begin at multiples of it: docs/security.md says how much a cell can send by them.
 */
#define CG_MCP_RELIST_MS 3000
/* Tools that a report about changed modules names: of those added, removed, and changed. */
#define CG_MCP_MAX_NAMES_SHOWN 10u
/* A list of a server over HTTP that announces no changes is valid for so long: bounds of "ttlMs". */
#define CG_MCP_MIN_VALID_MS    1000
#define CG_MCP_MAX_VALID_MS    60000
#define CG_MCP_MAX_STALE_LISTS 3u    /* for one call, with a change announced during each */
#define CG_MCP_NOTICE_MS       30000 /* for the response of HTTP to a notification */
#define CG_MCP_GRACE_MS        2000  /* after closing standard input, and again after SIGTERM */
#define CG_MCP_DRAIN_MS        500   /* from exit to end of output, or the other way round */
/*
 * After so many failures of a server in a row its next start has to wait, twice as long with each
 * further one. A server that has worked for a while begins anew.
 */
#define CG_MCP_CRASHES        3u
#define CG_MCP_RESTART_MS     1000
#define CG_MCP_MAX_RESTART_MS 60000
#define CG_MCP_WORKED_MS      30000
/*
 * A stdio server that has not answered a request in time is sent ping, and ended if it writes
 * nothing for so long, nor works on another request.
 */
#define CG_MCP_PING_MS 5000
/* Without ping: after so many requests in a row that were not answered in time. */
#define CG_MCP_MAX_TIMEOUTS 3u
