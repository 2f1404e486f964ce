/*
 * `cellgate mcp serve`: the forms that ask the person at the MCP client, by elicitation, and the
 * choices that they give. What they show comes from agents and servers.
 */
#include "base/json.h"
#include "base/text.h"
#include "cli/common/args.h"
#include "cli/mcp_serve/mcp_serve.h"

/*
 * Lines of the first form, and of each form of a call that does not fit into it: clients cut long
 * messages without saying so.
 */
#define SHOW_LINES 40
#define PART_LINES 100
#define SHOW_MAX   ((size_t)8 << 20)
/* Other calls that a form can accept, 32 in all. Their arguments are shown whole, a line each. */
#define SHOW_OTHERS 31u
#define LINE_WIDTH  100u
/* The most bytes that a form shows of the prompt of input(). */
#define PROMPT_BYTES 2000

/* The choices of the form. */
#define YES        "approve"
#define ALWAYS     "approve %s from now on" /* scope of cg_call_words() */
#define SAME       "approve exactly this call from now on"
#define ALL_BEGINS "approve all "
#define ALL        ALL_BEGINS "%zu calls of this tool that are shown"
#define NO         "reject"
/* Instead of the accepting choices, while not all was shown. */
#define VIEW        "view all"
#define HOST_ALWAYS "approve this host in this session"
#define HOST_NEVER  "reject this host in this session"

bool cg_serve_same_tool(const struct cg_serve_ask *a, const struct cg_serve_ask *b)
{
        return a->subject == CG_SERVE_ASK_CALL && b->subject == CG_SERVE_ASK_CALL &&
               strcmp(a->method, CG_METHOD_CALL) == 0 && strcmp(b->method, CG_METHOD_CALL) == 0 &&
               strcmp(a->server, b->server) == 0 && strcmp(a->tool, b->tool) == 0;
}

/* The arguments of a call, if all of them fit in a line. */
static bool add_line(const struct cg_serve_ask *a, struct cg_buf *b)
{
        size_t before = b->len;

        if (a->len > LINE_WIDTH)
                return false;
        cg_call_line(a->json, LINE_WIDTH, b);
        if (b->failed || !memchr(b->data + before, '\n', b->len - before - 1))
                return !b->failed;
        cg_buf_cut(b, before);
        return false;
}

/*
 * The first of the other calls that wait. Returns their number. A form that is made again has no
 * call that the first one did not have: the user may answer that one.
 */
static size_t add_others(struct cg_serve_session *s, struct cg_serve_ask *ask, struct cg_buf *b)
{
        uint64_t last = ask->all_id == ask->id ? ask->all_until : UINT64_MAX;
        cg_auto_buf struct cg_buf lines = { .max = SHOW_MAX };
        const struct cg_serve_ask *a;
        size_t n = 0, more = 0;

        ask->all_id = ask->id;
        ask->all_until = 0;
        TAILQ_FOREACH(a, &s->asks, entry) {
                if (a == ask || a->answered || !cg_serve_same_tool(a, ask))
                        continue;
                if (more || n == SHOW_OTHERS || a->approval > last || !add_line(a, &lines)) {
                        more++;
                        continue;
                }
                ask->all_until = a->approval;
                n++;
        }
        if (n)
                cg_buf_addf(b, "More calls of this tool wait, with these arguments:\n%s", cg_buf_str(&lines));
        if (more)
                cg_buf_addf(b, "Calls of this tool that have forms of their own: %zu.\n", more);
        return n;
}

/* The text of a question, or of its part. Sets a->all_shown. */
static void describe(const struct cg_serve_session *s, struct cg_serve_ask *a, struct cg_buf *b)
{
        struct cg_call_view view = { .width = 100,
                                     .lines = a->part ? PART_LINES : SHOW_LINES,
                                     .part = a->part };
        struct cg_call call = { .server = a->server,
                                .tool = a->tool,
                                .method = a->method,
                                .args = a->json,
                                .args_len = a->len,
                                .line = a->line ?: "",
                                .cell = s->cell };

        if (a->subject == CG_SERVE_ASK_CONNECTION) {
                a->all_shown = true;
                cg_buf_adds(b, "Code of the agent wants to connect to\n  ");
                cg_connection_text(a->json, b);
                cg_buf_adds(b, "\nwhich the sandbox's settings neither allow nor deny.\n");
                return;
        }
        if (a->approval)
                cg_buf_addf(b, "Code of the agent wants to %s:\n", cg_call_words(call.method)->title);
        else
                cg_buf_adds(b, "The agent asks for something that happens outside the sandbox:\n");
        cg_call_show(&call, &view, b);
        a->all_shown = view.last;
        if (a->part)
                cg_buf_addf(b, "Part %zu of %zu.\n", a->part, view.parts);
        else if (!view.last)
                cg_buf_adds(b, "Not all is shown. \"" VIEW
                               "\" shows it in parts, and after the last one it can be"
                               " approved.\n");
}

/* May "from now on" be the answer? */
static bool may_last(const struct cg_serve_ask *a)
{
        return a->subject == CG_SERVE_ASK_CALL && cg_approve_may_last(a->method, a->tool);
}

static bool may_repeat(const struct cg_serve_ask *a)
{
        return may_last(a) && cg_approve_has_arguments(a->method);
}

/* The choices, as items of a JSON array. */
static void add_choices(const struct cg_serve_ask *a, size_t others, struct cg_buf *b)
{
        cg_buf_adds(b, a->all_shown ? "\"" YES "\"," : "\"" VIEW "\",");
        if (a->all_shown && others)
                cg_buf_addf(b, "\"" ALL "\",", others + 1);
        if (a->subject == CG_SERVE_ASK_CONNECTION)
                cg_buf_adds(b, "\"" HOST_ALWAYS "\",\"" HOST_NEVER "\",");
        if (a->all_shown && may_repeat(a))
                cg_buf_adds(b, "\"" SAME "\",");
        if (a->all_shown && may_last(a))
                cg_buf_addf(b, "\"" ALWAYS "\",", cg_call_words(a->method)->scope);
        cg_buf_adds(b, "\"" NO "\"");
}

/* "message" of a form of ours. */
static void begin_form(const struct cg_serve_session *s, const struct cg_buf *message, struct cg_buf *params)
{
        cg_buf_fail(params, message->failed);
        cg_buf_adds(params, s->sv->proto.peer.modes ? "{\"mode\":\"form\",\"message\":" : "{\"message\":");
        cg_json_quote(params, message->data ?: "", message->len);
}

/* Which session it is about, where a process can have several. Its name is the agent's. */
static void add_session(const struct cg_serve_session *s, struct cg_buf *b)
{
        if (!(s->sv->opts.toolsets & CG_SERVE_SESSIONS) && !s->sv->opts.new_sessions)
                return;
        cg_buf_addf(b, "Session %s", s->id);
        if (s->given.name) {
                cg_buf_adds(b, ", which the agent calls ");
                cg_json_quote(b, s->given.name, strlen(s->given.name));
        }
        cg_buf_adds(b, ".\n");
}

/* Our own question, as params of elicitation/create. */
static void own_form(struct cg_serve_session *s, struct cg_serve_ask *a, struct cg_buf *params)
{
        cg_auto_buf struct cg_buf message = { .max = SHOW_MAX };
        size_t others = 0;

        describe(s, a, &message);
        if (a->all_shown)
                others = add_others(s, a, &message);
        add_session(s, &message);
        cg_buf_addf(&message, "Without an answer within %lld s it is refused.\n",
                    (long long)s->sv->opts.ask_timeout_ms / 1000);
        begin_form(s, &message, params);
        cg_buf_adds(params, ",\"requestedSchema\":{\"type\":\"object\",\"properties\":{"
                            "\"decision\":{\"type\":\"string\",\"title\":\"Decision\",\"enum\":[");
        add_choices(a, others, params);
        /* A required choice: some clients accept a form without fields by themselves. */
        cg_buf_adds(params, "]},\"reason\":{\"type\":\"string\",\"title\":\"Reason\","
                            "\"description\":\"For the agent, when rejected\"}},"
                            "\"required\":[\"decision\"]}}");
}

/* A server's question: its params, with a message that says who asks. */
static void server_form(const struct cg_serve_ask *a, struct cg_buf *params)
{
        static const char *const members[] = { "mode", "requestedSchema", "url", "elicitationId" };
        struct cg_slice object = { a->json, a->len }, v;
        cg_auto_buf struct cg_buf message = { .max = SHOW_MAX }, text = { .max = SHOW_MAX };

        cg_buf_adds(&message, "The MCP server ");
        cg_name_render(&message, a->server);
        cg_buf_adds(&message, " asks: ");
        if (cg_json_find(object, "message", &v))
                cg_buf_fail(&message, cg_json_string(v, &text, NULL));
        cg_text_render_as(&message, cg_buf_str(&text), text.len, 0, CG_TEXT_OUTPUT);
        cg_buf_fail(params, message.failed);
        cg_buf_adds(params, "{\"message\":");
        cg_json_quote(params, message.data ?: "", message.len);
        for (size_t i = 0; i < CG_ARRAY_LEN(members); i++)
                if (cg_json_find(object, members[i], &v)) {
                        cg_buf_addf(params, ",\"%s\":", members[i]);
                        cg_buf_add(params, v.p, v.len);
                }
        cg_buf_adds(params, "}");
}

/*
 * input() of the cell. The prompt is the agent's or worse, and forms show it to a person who trusts
 * cellgate: the text says whose it is.
 */
static void input_form(const struct cg_serve_session *s, const struct cg_serve_ask *a, struct cg_buf *params)
{
        cg_auto_buf struct cg_buf message = { .max = SHOW_MAX };

        add_session(s, &message);
        cg_buf_adds(&message, "Code of the agent waits for text, which it and the agent can read: enter no"
                              " passwords. Nothing is approved by it. Its prompt:\n");
        cg_text_render(&message, a->tool, strlen(a->tool), PROMPT_BYTES);
        begin_form(s, &message, params);
        cg_buf_adds(params, ",\"requestedSchema\":{\"type\":\"object\",\"properties\":{"
                            "\"text\":{\"type\":\"string\",\"title\":\"Text\"}},\"required\":[\"text\"]}}");
}

void cg_serve_form(struct cg_serve_session *s, struct cg_serve_ask *a, struct cg_buf *params)
{
        if (a->subject == CG_SERVE_ASK_SERVER)
                server_form(a, params);
        else if (a->subject == CG_SERVE_ASK_INPUT)
                input_form(s, a, params);
        else
                own_form(s, a, params);
        /* A form that failed has shown nothing. */
        if (params->failed)
                a->all_shown = false;
}

enum cg_serve_choice cg_serve_read_choice(const struct cg_serve_ask *a, const char *decision)
{
        char always[120];

        if (!a->all_shown)
                return strcmp(decision, VIEW) == 0 ? CG_SERVE_CHOICE_VIEW : CG_SERVE_CHOICE_NO;
        if (strcmp(decision, YES) == 0)
                return CG_SERVE_CHOICE_YES;
        if (a->subject == CG_SERVE_ASK_CONNECTION && strcmp(decision, HOST_ALWAYS) == 0)
                return CG_SERVE_CHOICE_ALWAYS;
        if (a->subject == CG_SERVE_ASK_CONNECTION && strcmp(decision, HOST_NEVER) == 0)
                return CG_SERVE_CHOICE_NEVER;
        if (a->subject != CG_SERVE_ASK_CALL)
                return CG_SERVE_CHOICE_NO;
        snprintf(always, sizeof(always), ALWAYS, cg_call_words(a->method)->scope);
        if (may_last(a) && strcmp(decision, always) == 0)
                return CG_SERVE_CHOICE_ALWAYS;
        if (may_repeat(a) && strcmp(decision, SAME) == 0)
                return CG_SERVE_CHOICE_SAME;
        if (a->all_until && strncmp(decision, ALL_BEGINS, strlen(ALL_BEGINS)) == 0)
                return CG_SERVE_CHOICE_ALL;
        return CG_SERVE_CHOICE_NO;
}
