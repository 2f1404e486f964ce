/*
 * The tools of one MCP server compared with their pins: pins.h. Linked into the tool server, which
 * is the only process that sees the definition that is in force when a tool is called, and into the
 * command line.
 */
#include "mcp/pins/pins.h"

#include "base/ceilings.h"
#include "base/json.h"
#include "base/text.h"
#include "mcp/ceilings.h"

/* From AMBIGUOUS on: of the list alone, whatever the pins are. */
enum pin_state { UNKNOWN, ACCEPTED, CHANGED, HELD, AMBIGUOUS, INVALID };

/* A tool of the last list. */
struct pinned_tool {
        char *name;
        char digest[CG_SHA256_HEX];
        enum pin_state state;
        bool is_new, reported;
        char *text;     /* canonical; only while it is needed */
        char *accepted; /* CHANGED: the accepted text; NULL: not kept */
        char *why;      /* INVALID */
};

struct cg_pins {
        char *server, *program;
        char key[CG_SHA256_HEX]; /* of the server's name and definition */
        char *shown;             /* the server's name, safe to show */
        char *accept;            /* the command that accepts its tools, quoted for a shell */
        char path[PATH_MAX];
        struct pinned_tool *v; /* sorted by name */
        size_t n;
        bool first;        /* the last list was the first of this definition */
        bool stored;       /* a list with the digests of the last one is in the file beside the pins */
        struct cg_err why; /* code < 0: no tool may be called */
        bool why_reported;
        json_t *unrecorded; /* by key: pins that could not be written to a file; of the process */
        char not_written[400];
        struct stat stamp; /* of the file that was read last */
};

/* ---- lists */

static void free_entries(struct pinned_tool *v, size_t n)
{
        for (size_t i = 0; i < n; i++) {
                free(v[i].name);
                free(v[i].text);
                free(v[i].accepted);
                free(v[i].why);
        }
        free(v);
}

static int by_name(const void *a, const void *b)
{
        const struct pinned_tool *x = a, *y = b;
        int r = strcmp(x->name, y->name);

        return r ?: strcmp(x->digest, y->digest);
}

static struct pinned_tool *find(const struct cg_pins *p, const char *tool)
{
        size_t low = 0, high = p->n;

        while (low < high) {
                size_t mid = low + (high - low) / 2;
                int r = strcmp(tool, p->v[mid].name);

                if (r == 0)
                        return &p->v[mid];
                if (r < 0)
                        high = mid;
                else
                        low = mid + 1;
        }
        return NULL;
}

/*
 * Reads one tool. One whose definition has no canonical form is INVALID, and so is one without a
 * usable name, whose name is then the start of the JSON text in its place.
 */
static int read_tool(struct cg_slice tool, struct pinned_tool *e, struct cg_err *err)
{
        cg_auto_buf struct cg_buf b = { .max = 8 * CG_MCP_MAX_LIST };
        struct cg_slice name = CG_SLICE_NONE;
        struct cg_err why;
        int r = cg_json_member(tool, "name", &name, &why);

        if (r >= 0)
                r = cg_json_strdup(name, &e->name, &why);
        if (r >= 0 && strlen(e->name) > CG_MAX_NAME)
                r = cg_fail(&why, CG_E_LIMIT, "the name has over %d bytes", CG_MAX_NAME);
        if (r < 0) {
                cg_err_prefix(&why, "its name");
                if (!name.p)
                        name = CG_SLICE("?");
                cg_text_render_as(&b, name.p, name.len, 200, CG_TEXT_LINE);
                free(e->name);
                e->name = cg_buf_steal(&b, NULL);
        } else {
                r = cg_pin_canonical(tool, &b, &why);
        }
        if (!e->name || r == CG_E_NOMEM)
                return cg_fail(err, CG_E_NOMEM, "tools");
        if (r < 0) {
                e->state = INVALID;
                e->why = strdup(why.msg);
                return cg_made(e->why, "tools", err);
        }
        cg_sha256_hex(b.data, b.len, e->digest);
        e->text = cg_buf_steal(&b, NULL);
        return cg_made(e->text, "tools", err);
}

/*
 * Reads the list. A tool that is listed twice is one where both are the same, else ambiguous: which
 * of them a call would run is not known.
 */
static int read_list(const char *tools, size_t len, struct pinned_tool **ret, size_t *n_ret,
                     struct cg_err *err)
{
        struct pinned_tool *v = NULL;
        struct cg_json_walk w;
        struct cg_slice tool;
        size_t n = 0, cap = 0, kept = 0;
        int r = cg_json_walk_init(&w, (struct cg_slice){ tools, len }, '[', err);

        while (r == 0 && (r = cg_json_walk_next(&w, NULL, &tool, err)) == 0) {
                if (!CG_GROW(v, n, cap)) {
                        r = cg_fail(err, CG_E_NOMEM, "tools");
                        break;
                }
                v[n] = (struct pinned_tool){ .state = UNKNOWN };
                r = read_tool(cg_json_trim(tool), &v[n++], err);
        }
        if (r < 0) {
                free_entries(v, n);
                return r;
        }
        if (n)
                qsort(v, n, sizeof(*v), by_name);
        for (size_t i = 0; i < n; i++) {
                if (kept && strcmp(v[kept - 1].name, v[i].name) == 0) {
                        if (strcmp(v[kept - 1].digest, v[i].digest) != 0)
                                v[kept - 1].state = AMBIGUOUS;
                        free(v[i].name);
                        free(v[i].text);
                        free(v[i].why);
                        continue;
                }
                v[kept++] = v[i];
        }
        *ret = v;
        *n_ret = kept;
        return 0;
}

/* ---- comparing */

/* Equal for names that a person could take for each other. */
static char fold(char c)
{
        c = cg_ascii_lower(c);
        return c == '-' || c == '.' || c == '/' || c == ' ' ? '_' : c;
}

/*
 * True for a new name that must be accepted first: it looks like a known tool's, or has characters
 * beyond ASCII, which may look like any.
 */
static bool looks_alike(const json_t *pins, const char *name)
{
        const char *other;
        const json_t *pin;

        for (const char *p = name; *p; p++)
                if ((unsigned char)*p >= 0x80)
                        return true;
        json_object_foreach(cg_json_unconst(pins), other, pin) {
                size_t i = 0;

                while (name[i] && fold(name[i]) == fold(other[i]))
                        i++;
                if (!name[i] && !other[i])
                        return true;
        }
        return false;
}

static json_t *pin_json(const struct pinned_tool *e)
{
        json_t *j = json_pack("{ss}", "sha256", e->digest);

        if (j && e->text && strlen(e->text) <= CG_PINS_MAX_TEXT)
                json_object_set_new(j, "text", json_string(e->text));
        return j;
}

static const char *member(const json_t *pin, const char *key)
{
        return json_string_value(json_object_get(pin, key));
}

static int too_many(const struct cg_pins *p, struct cg_err *err)
{
        return cg_fail(
                err, CG_E_LIMIT,
                "MCP server \"%s\" has listed over %u different tools: remove %s to accept its tools as they are now",
                p->shown, CG_MCP_MAX_TOOLS, p->path);
}

/* Sets the state of each tool by the pins in @doc, and adds what is new. *changed: they were. */
static int compare(struct cg_pins *p, json_t *doc, bool *changed, struct cg_err *err)
{
        json_t *tools = json_object_get(doc, "tools"), *pin;

        for (size_t i = 0; i < p->n; i++) {
                struct pinned_tool *e = &p->v[i];
                const char *accepted, *text;
                int r = 0;

                if (e->state >= AMBIGUOUS)
                        continue;
                pin = json_object_get(tools, e->name);
                accepted = member(pin, "sha256");
                if (accepted && strcmp(accepted, e->digest) == 0) {
                        e->state = ACCEPTED;
                        if (json_object_del(pin, "pending") == 0)
                                *changed = true;
                        continue;
                }
                if (!pin && json_object_size(tools) >= CG_MCP_MAX_TOOLS)
                        return too_many(p, err);
                if (!pin && (p->first || !looks_alike(tools, e->name))) {
                        e->state = ACCEPTED;
                        e->is_new = true;
                        r = json_object_set_new(tools, e->name, pin_json(e));
                        *changed = true;
                } else {
                        e->state = accepted ? CHANGED : HELD;
                        text = member(pin, "text");
                        e->accepted = cg_strdup(text);
                        if (!pin)
                                r = json_object_set_new(tools, e->name, pin = json_object());
                        text = member(json_object_get(pin, "pending"), "sha256");
                        if (r == 0 && (!text || strcmp(text, e->digest) != 0)) {
                                r = json_object_set_new(pin, "pending", pin_json(e));
                                *changed = true;
                        }
                }
                if (r < 0)
                        return cg_fail(err, CG_E_NOMEM, "pins of tools");
        }
        return 0;
}

static json_t *unrecorded(const struct cg_pins *p)
{
        return json_object_get(p->unrecorded, p->key);
}

/*
 * Reads the pins of the file, and adds those that could not be written to it. An entry of the file
 * takes precedence: the user may have accepted another definition. CG_E_NOTFOUND: there are none.
 */
static int load(const struct cg_pins *p, json_t **ret, struct cg_err *err)
{
        cg_auto_json json_t *doc = NULL;
        int r = p->path[0] ? cg_pins_load(p->path, &doc, err) : CG_E_NOTFOUND;
        json_t *mine = unrecorded(p), *tools;

        if (r == CG_E_NOTFOUND && mine) {
                *ret = json_incref(mine);
                return 0;
        }
        if (r < 0)
                return r;
        tools = json_object_get(doc, "tools");
        if (mine && json_object_update_missing(tools, json_object_get(mine, "tools")) < 0)
                return cg_fail(err, CG_E_NOMEM, "pins of tools");
        if (json_object_size(tools) > CG_MCP_MAX_TOOLS)
                return too_many(p, err);
        *ret = CG_STEAL(doc);
        return 0;
}

/* Reads the pins, compares, and writes them where they have changed. */
static int update(struct cg_pins *p, struct cg_err *err)
{
        cg_auto_json json_t *doc = NULL;
        cg_auto_fd int lock = -1;
        bool changed = false, unwritten;
        struct cg_err why = { .code = 0 }, unread;
        int r, locked = p->path[0] ? 0 : cg_pins_path(p->key, p->path, sizeof(p->path), &why);

        if (locked < 0 && locked != CG_E_NOTFOUND) /* there may be pins in it */
                return cg_fail(err, locked, "%s", why.msg);
        if (locked == 0)
                locked = cg_pins_lock(p->path, CG_PINS_LOCK_MS, &lock, &why);
        r = load(p, &doc, &unread);
        p->first = r == CG_E_NOTFOUND;
        if (r < 0 && !p->first)
                return cg_fail(err, r, "%s", unread.msg);
        if (p->first)
                doc = json_pack("{ss si ss ss s{}}", "format", "cellgate tool pins", "version", 1, "server",
                                p->server, "program", p->program, "tools");
        if (!doc)
                return cg_fail(err, CG_E_NOMEM, "pins of tools");
        r = compare(p, doc, &changed, err);
        if (r < 0)
                return r;
        unwritten = changed || unrecorded(p);
        if (unwritten && locked == 0)
                unwritten = cg_pins_save(p->path, doc, &why) < 0;
        /* Kept until they are written, or the next list would be accepted as the first one. */
        if (!unwritten)
                json_object_del(p->unrecorded, p->key);
        else if (!unrecorded(p) && json_object_size(p->unrecorded) >= CG_PINS_MAX_UNRECORDED)
                return cg_fail(err, CG_E_LIMIT, "the tools of over %u servers cannot be stored: %s",
                               CG_PINS_MAX_UNRECORDED, why.msg);
        else if (json_object_set(p->unrecorded, p->key, doc) < 0)
                return cg_fail(err, CG_E_NOMEM, "pins of tools");
        snprintf(p->not_written, sizeof(p->not_written), "%.*s", (int)sizeof(p->not_written) - 1,
                 unwritten ? why.msg : "");
        if (!p->path[0] || stat(p->path, &p->stamp) < 0)
                p->stamp = (struct stat){ 0 };
        return 0;
}

void cg_pins_listed(struct cg_pins *p, const char *tools, size_t len)
{
        struct pinned_tool *old = p->v, *e;
        size_t n_old = p->n, accepted = 0, same = 0;
        struct cg_err before = p->why;

        p->v = NULL;
        p->n = 0;
        p->why.code = 0;
        if (read_list(tools, len, &p->v, &p->n, &p->why) < 0 || update(p, &p->why) < 0)
                p->why.code = p->why.code ?: CG_E_STATE;
        p->why_reported &= p->why.code == before.code && strcmp(p->why.msg, before.msg) == 0;
        for (size_t i = 0; i < n_old; i++) {
                e = find(p, old[i].name);
                if (e && strcmp(e->digest, old[i].digest) == 0) {
                        e->reported = old[i].reported;
                        same++;
                }
        }
        free_entries(old, n_old);
        for (size_t i = 0; i < p->n; i++)
                if (p->v[i].state == ACCEPTED) {
                        free(p->v[i].text);
                        p->v[i].text = NULL;
                        accepted++;
                }
        if (unrecorded(p) || accepted != p->n)
                tools = NULL;
        if (p->why.code == 0 && p->path[0] && !(tools && p->stored && same == n_old && same == p->n))
                cg_pins_save_list(p->path, tools, len);
        p->stored = p->why.code == 0 && p->path[0] && tools;
}

/* ---- the last list */

static size_t count(const char *tools, size_t len)
{
        struct cg_json_walk w;
        struct cg_slice tool;
        size_t n = 0;

        if (cg_json_walk_init(&w, (struct cg_slice){ tools, len }, '[', NULL) == 0)
                while (cg_json_walk_next(&w, NULL, &tool, NULL) == 0)
                        n++;
        return n;
}

int cg_pins_known(const struct cg_pins *p, struct cg_buf *b, struct cg_err *err)
{
        cg_auto_json json_t *doc = NULL;
        cg_auto_free char *text = NULL;
        struct pinned_tool *v = NULL;
        json_t *tools, *pin;
        char path[PATH_MAX];
        const char *name, *sha;
        size_t n = 0, len;
        bool known;

        if (cg_pins_path(p->key, path, sizeof(path), err) < 0 || cg_pins_load(path, &doc, err) < 0 ||
            cg_pins_load_list(path, &text, &len, err) < 0 || read_list(text, len, &v, &n, err) < 0)
                return cg_fail(err, CG_E_NOTFOUND, "the tools of MCP server \"%s\" are not known", p->shown);
        tools = json_object_get(doc, "tools");
        /* A server without some of its tools, or all, may have them again when it is started. */
        known = n && n == json_object_size(tools);
        json_object_foreach(tools, name, pin)
                known = known && !json_object_get(pin, "pending");
        for (size_t i = 0; i < n && known; i++) {
                sha = member(json_object_get(tools, v[i].name), "sha256");
                known = sha && strcmp(sha, v[i].digest) == 0;
        }
        free_entries(v, n);
        /* A tool that is listed twice is in one of the counts only. */
        if (!known || n != count(text, len))
                return cg_fail(err, CG_E_NOTFOUND,
                               "the last list of MCP server \"%s\" does not have exactly its accepted tools",
                               p->shown);
        return cg_buf_try_add(b, text, len, err);
}

/* ---- calls */

/* Reads the file again if it is another: somebody has accepted a tool. */
static void reload(struct cg_pins *p)
{
        cg_auto_json json_t *doc = NULL;
        struct stat st;

        if (!p->path[0] || stat(p->path, &st) < 0 ||
            (st.st_ino == p->stamp.st_ino && st.st_dev == p->stamp.st_dev && st.st_size == p->stamp.st_size &&
             st.st_mtim.tv_sec == p->stamp.st_mtim.tv_sec && st.st_mtim.tv_nsec == p->stamp.st_mtim.tv_nsec))
                return;
        p->stamp = st;
        if (load(p, &doc, &p->why) < 0)
                return;
        for (size_t i = 0; i < p->n; i++) {
                struct pinned_tool *e = &p->v[i];
                const json_t *pin = json_object_get(json_object_get(doc, "tools"), e->name);
                const char *accepted = member(pin, "sha256");

                if (e->state >= AMBIGUOUS)
                        continue;
                e->state = accepted ? CHANGED : HELD;
                if (accepted && strcmp(accepted, e->digest) == 0)
                        e->state = ACCEPTED;
        }
}

int cg_pins_check(struct cg_pins *p, const char *tool, struct cg_err *err)
{
        const struct pinned_tool *e;

        if (!p)
                return 0;
        if (p->why.code == 0)
                reload(p);
        if (p->why.code < 0)
                return cg_fail(err, p->why.code, "MCP server \"%s\": no tool is called: %s", p->shown,
                               p->why.msg);
        e = find(p, tool);
        switch (e ? e->state : UNKNOWN) {
        case ACCEPTED:
                return 0;
        case CHANGED:
                return cg_fail(
                        err, CG_E_STATE,
                        "tool \"%s\" of MCP server \"%s\" has changed since it was accepted: it is not called until the change is "
                        "accepted by the user of cellgate: %s",
                        tool, p->shown, p->accept);
        case HELD:
                return cg_fail(
                        err, CG_E_STATE,
                        "tool \"%s\" of MCP server \"%s\" is new, and its name looks like another tool's: it is not called until it is "
                        "accepted by the user of cellgate: %s",
                        tool, p->shown, p->accept);
        case AMBIGUOUS:
                return cg_fail(
                        err, CG_E_STATE,
                        "MCP server \"%s\" lists tool \"%s\" twice, with different definitions: it is not called",
                        p->shown, tool);
        case INVALID:
                return cg_fail(
                        err, CG_E_STATE,
                        "the definition of tool \"%s\" of MCP server \"%s\" is not valid, and it is not called: %.400s",
                        tool, p->shown, e->why);
        case UNKNOWN:
        default:
                return cg_fail(err, CG_E_NOTFOUND, "MCP server \"%s\" has no tool \"%s\"", p->shown, tool);
        }
}

bool cg_pins_failed(const struct cg_pins *p)
{
        return p && p->why.code < 0;
}

const char *cg_pins_state(const struct cg_pins *p, const char *tool)
{
        static const char *const names[] = {
                "unknown", "accepted", "changed", "held", "ambiguous", "invalid"
        };
        const struct pinned_tool *e = find(p, tool);

        if (!e)
                return names[UNKNOWN];
        return e->is_new && e->state == ACCEPTED ? "new" : names[e->state];
}

/* ---- reports */

static void add_names(const struct cg_pins *p, struct cg_buf *b)
{
        size_t shown = 0;

        for (size_t i = 0; i < p->n; i++) {
                if (!p->v[i].is_new || shown++ >= 20)
                        continue;
                if (shown > 1)
                        cg_buf_adds(b, ", ");
                cg_text_render_as(b, p->v[i].name, strlen(p->v[i].name), 0, CG_TEXT_LINE);
        }
        if (shown > 20)
                cg_buf_addf(b, " and %zu more", shown - 20);
        cg_buf_adds(b, "\n");
}

static void add_text(const struct cg_pins *p, const struct pinned_tool *e, const char *diff, struct cg_buf *b)
{
        cg_auto_buf struct cg_buf name = { .max = 4096 };

        cg_text_render_as(&name, e->name, strlen(e->name), 0, CG_TEXT_LINE);
        if (e->state == AMBIGUOUS)
                cg_buf_addf(
                        b,
                        "tool %s of MCP server %s is listed twice, with different definitions: it is not called\n",
                        name.data, p->shown);
        else if (e->state == INVALID)
                cg_buf_addf(
                        b,
                        "the definition of tool %s of MCP server %s is not valid, and it is not called: %.400s\n",
                        name.data, p->shown, e->why);
        else
                cg_buf_addf(b, "tool %s of MCP server %s %s; it is not called until you accept it:\n%s  %s\n",
                            name.data, p->shown,
                            e->state == CHANGED ? "has changed since it was accepted"
                                                : "is new, and its name looks like another tool's",
                            diff, p->accept);
}

bool cg_pins_has_news(const struct cg_pins *p)
{
        for (size_t i = 0; i < p->n; i++)
                if (!p->v[i].reported && (p->v[i].is_new || p->v[i].state != ACCEPTED))
                        return true;
        return p->why.code < 0 && !p->why_reported;
}

int cg_pins_report(struct cg_pins *p, bool all, struct cg_buf *b, struct cg_err *err)
{
        cg_auto_json json_t *new = json_array(), *changed = json_array(), *report = NULL;
        /* Twenty names and a change may come on top of what is full. */
        cg_auto_buf struct cg_buf text = { .max = 4 * CG_PINS_MAX_NOTICE },
                                  first = { .max = CG_PINS_MAX_NOTICE };
        cg_auto_free char *json = NULL;
        size_t left_out = 0, unseen;
        int r;

        for (size_t i = 0; i < p->n; i++)
                if (p->v[i].is_new && (all || !p->v[i].reported))
                        json_array_append_new(new, json_string(p->v[i].name));
        if (json_array_size(new) && p->first) {
                cg_buf_addf(&first, "MCP server %s is new: its tools (%zu) are accepted as they are now\n",
                            p->shown, json_array_size(new));
        } else if (json_array_size(new)) {
                cg_buf_addf(&text, "MCP server %s has new tools: ", p->shown);
                add_names(p, &text);
        }
        if (unrecorded(p) && json_array_size(new))
                cg_buf_addf(&text, "the tools of MCP server %s cannot be stored, and will be new again: %s\n",
                            p->shown, p->not_written);
        for (size_t i = 0; i < p->n; i++) {
                struct pinned_tool *e = &p->v[i];
                cg_auto_buf struct cg_buf diff = { .max = CG_PINS_MAX_NOTICE };

                if (e->state == ACCEPTED || (e->reported && !all)) {
                        e->reported = true;
                        continue;
                }
                e->reported = true;
                if (e->state == CHANGED) {
                        r = cg_pin_diff(cg_slice_or_none(e->accepted), cg_slice_or_none(e->text),
                                        CG_PINS_MAX_DIFF, &diff, &unseen, err);
                        if (r < 0)
                                return r;
                }
                json_array_append_new(changed,
                                      json_pack("{ss ss ss}", "tool", e->name, "state",
                                                cg_pins_state(p, e->name), "diff", cg_buf_str(&diff)));
                if (text.len + diff.len + 2048 > CG_PINS_MAX_NOTICE)
                        left_out++;
                else
                        add_text(p, e, cg_buf_str(&diff), &text);
        }
        if (left_out)
                cg_buf_addf(&text, "%zu more tools of MCP server %s are not called: %s\n", left_out, p->shown,
                            p->accept);
        if (p->why.code < 0 && (all || !p->why_reported)) {
                cg_buf_addf(&text, "MCP server %s: no tool is called: %.800s\n", p->shown, p->why.msg);
                p->why_reported = true;
        }
        if (cg_buf_end(&first, err) < 0 || cg_buf_end(&text, err) < 0)
                return CG_E_NOMEM;
        if (!text.len && !first.len)
                return 0;
        report = json_pack("{ss ss sO sO ss}", "file", p->path, "first", cg_buf_str(&first), "new", new,
                           "changed", changed, "text", cg_buf_str(&text));
        json = cg_json_text(report, NULL);
        if (!json)
                return cg_fail(err, CG_E_NOMEM, "report about tools");
        cg_buf_adds(b, json);
        return cg_buf_end(b, err);
}

int cg_pins_list(const struct cg_pins *p, const char *tools, size_t len, struct cg_buf *b, struct cg_err *err)
{
        struct cg_slice tool, name;
        struct cg_json_walk w;
        const char *between = "";
        int r;

        if (p->why.code < 0)
                return cg_fail(err, p->why.code, "MCP server \"%s\": %s", p->shown, p->why.msg);
        r = cg_json_walk_init(&w, (struct cg_slice){ tools, len }, '[', err);
        if (r < 0)
                return r;
        cg_buf_adds(b, "[");
        while ((r = cg_json_walk_next(&w, NULL, &tool, err)) == 0) {
                cg_auto_free char *text = NULL;
                const struct pinned_tool *e = NULL;

                if (cg_json_member(tool, "name", &name, NULL) == 0 && cg_json_strdup(name, &text, NULL) == 0)
                        e = find(p, text);
                if (e && e->state == CHANGED && e->accepted)
                        tool = cg_slice_of(e->accepted);
                else if (!e || e->state != ACCEPTED)
                        continue;
                cg_buf_adds(b, between);
                between = ",";
                cg_buf_add(b, tool.p, tool.len);
        }
        if (r < 0)
                return r;
        cg_buf_adds(b, "]");
        return cg_buf_end(b, err);
}

/* ---- */

/* Appends a name as one word of a shell's command line. */
static void add_word(struct cg_buf *b, const char *name)
{
        static const char plain[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-";

        if (*name && !name[strspn(name, plain)]) {
                cg_buf_adds(b, name);
                return;
        }
        cg_buf_adds(b, "'");
        for (const char *p = name; *p; p++) {
                if (*p == '\'')
                        cg_buf_adds(b, "'\\''");
                else
                        cg_buf_add(b, p, 1);
        }
        cg_buf_adds(b, "'");
}

struct cg_pins *cg_pins_free(struct cg_pins *p)
{
        if (!p)
                return NULL;
        free_entries(p->v, p->n);
        json_decref(p->unrecorded);
        free(p->server);
        free(p->shown);
        free(p->accept);
        free(p->program);
        free(p);
        return NULL;
}

CG_FREEP(pins_freep, struct cg_pins *, cg_pins_free)

int cg_pins_new(const char *server, const char *program, const json_t *definition, json_t *unrecorded,
                struct cg_pins **ret, struct cg_err *err)
{
        cg_auto_buf struct cg_buf both = { .max = (size_t)2 * CG_MAX_SETTINGS };
        cg_auto_free char *own = cg_json_mcp_identity(definition);
        cg_auto_buf struct cg_buf shown = { .max = 4096 }, accept = { .max = 8192 };
        const char *identity = member(definition, "identity");
        CG_CLEANUP(pins_freep) struct cg_pins *p = calloc(1, sizeof(*p));

        if (!p || !own)
                return cg_fail(err, CG_E_NOMEM, "pins of tools");
        p->server = strdup(server);
        p->program = strdup(program);
        p->unrecorded = unrecorded ? json_incref(unrecorded) : json_object();
        cg_text_render_as(&shown, server, strlen(server), 0, CG_TEXT_LINE);
        cg_buf_adds(&accept, "cellgate mcp accept ");
        add_word(&accept, cg_buf_str(&shown));
        p->shown = cg_buf_steal(&shown, NULL);
        p->accept = cg_buf_steal(&accept, NULL);
        cg_buf_add(&both, server, strlen(server) + 1);
        cg_buf_adds(&both, identity ?: own);
        if (!p->server || !p->program || !p->unrecorded || !p->shown || !p->accept || both.failed)
                return cg_fail(err, CG_E_NOMEM, "pins of tools");
        cg_sha256_hex(both.data, both.len, p->key);
        *ret = CG_STEAL(p);
        return 0;
}
