/* A command's denials: see denial_log.h. */
#include "sandbox/command/denial_log.h"

#include <stdarg.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include "base/fd.h"
#include "base/json.h"
#include "base/text.h"
#include "sandbox/command/denial.h"

void cg_denial_log_init(struct cg_denial_log *v, const struct cg_settings *s, const char *home, int log,
                        bool debug)
{
        *v = (struct cg_denial_log){ .settings = s, .home = home, .log = log, .control = -1, .debug = debug };
}

void cg_denial_log_fini(struct cg_denial_log *v)
{
        for (size_t i = 0; i < v->n; i++)
                free(v->folders[i]);
        for (size_t i = 0; i < v->n; i++)
                free(v->sentences[i]);
        v->n = 0;
        cg_closep_(&v->log);
}

static bool is_ignored(const struct cg_denial_log *v, const char *line)
{
        const struct cg_settings *s = v->settings;

        for (size_t i = 0; i < s->n_ignores; i++) {
                if (strcmp(s->ignores[i].command, "*") != 0 && !strstr(v->command, s->ignores[i].command))
                        continue;
                for (size_t k = 0; k < s->ignores[i].texts.n; k++)
                        if (strstr(line, s->ignores[i].texts.v[k]))
                                return true;
        }
        return false;
}

/* The keeper does not wait for a host that does not read: it omits denials, and counts them. */
static void send_control(struct cg_denial_log *v, char *text, size_t len, const char *sentence)
{
        cg_auto_buf struct cg_buf after = { .max = 65536 };
        char before[100];
        int n = snprintf(before, sizeof(before),
                         "{\"type\":\"denied\",\"unsent\":%" PRIu64 ",\"denial\":", v->unsent);
        struct iovec iov[] = { { before, (size_t)n }, { text, len }, { NULL, 0 } };
        struct msghdr m = { .msg_iov = iov, .msg_iovlen = CG_ARRAY_LEN(iov) };
        ssize_t sent;

        if (v->control < 0)
                return;
        if (v->with_text && sentence &&
            (cg_buf_try_adds(&after, ",\"text\":", NULL) < 0 ||
             cg_json_try_quote(&after, sentence, strlen(sentence), NULL) < 0))
                return;
        if (cg_buf_try_adds(&after, "}\n", NULL) < 0)
                return;
        iov[2] = (struct iovec){ after.data, after.len };
        /* A line is smaller than half a socket buffer: all of it is sent, or nothing. */
        sent = sendmsg(v->control, &m, MSG_DONTWAIT | MSG_NOSIGNAL);
        if (sent == n + (ssize_t)(len + after.len))
                v->unsent = 0;
        else if (sent < 0 && (errno == EAGAIN || errno == ENOBUFS))
                v->unsent++;
        else
                v->control = -1;
}

static void write_log(struct cg_denial_log *v, const json_t *denial, const char *sentence)
{
        cg_auto_free char *text = NULL;
        size_t len;

        if ((v->log < 0 && v->control < 0) || v->logged > CG_DENIAL_LOG_BYTES)
                return;
        text = cg_json_text(denial, &len);
        if (!text)
                return;
        v->logged += len + 1;
        if (v->logged <= CG_DENIAL_LOG_BYTES)
                send_control(v, text, len, sentence);
        /* in the place of the NUL: one write, so that logs that commands share have whole lines */
        text[len] = '\n';
        if (v->logged > CG_DENIAL_LOG_BYTES || (v->log >= 0 && cg_write_all(v->log, text, len + 1, NULL) < 0))
                dprintf(2, "cellgate sandbox: the violation log gets no more lines of this command: %s\n",
                        v->logged > CG_DENIAL_LOG_BYTES ? "there were too many" : "it cannot be written");
}

void cg_denial_log_debug(const struct cg_denial_log *v, const char *fmt, ...)
{
        cg_auto_buf struct cg_buf b = { .max = 16384 };
        char line[4096];
        va_list ap;

        if (!v->debug)
                return;
        va_start(ap, fmt);
        vsnprintf(line, sizeof(line), fmt, ap);
        va_end(ap);
        if (cg_text_try_render(&b, line, strlen(line), 4096, NULL) == 0 && b.data)
                dprintf(2, "[SandboxDebug] %s\n", b.data);
}

/*
 * The folder that a program keeps below the home folder, such as ~/.npm or ~/.cache/pip, where a
 * file in it could not be written: names in it are mostly random, and a setting that allowed one of
 * them would be of no use. NULL: another file. The caller frees. *inside: false where it may be the
 * folder itself.
 */
static char *program_folder(const struct cg_denial_log *v, const json_t *denial, bool *inside)
{
        static const char *const shared[] = { "/.cache/", "/.config/", "/.local/share/", "/.local/state/",
                                              "/.local/" };
        const char *path = json_string_value(json_object_get(denial, "path")),
                   *operation = json_string_value(json_object_get(denial, "operation")),
                   *rule = json_string_value(json_object_get(denial, "rule")), *rest;
        size_t home = cg_strlen(v->home), len;

        if (!path || !rule || !operation || strcmp(operation, "file-write") != 0 ||
            strcmp(rule, "not in filesystem.allowWrite") != 0 || home < 2 ||
            strncmp(path, v->home, home) != 0 || strncmp(path + home, "/.", 2) != 0)
                return NULL;
        rest = path + home + 1;
        for (size_t i = 0; i < CG_ARRAY_LEN(shared); i++) {
                if (strncmp(path + home, shared[i], strlen(shared[i])) == 0) {
                        rest = path + home + strlen(shared[i]);
                        break;
                }
        }
        len = (size_t)(rest - path) + strcspn(rest, "/");
        *inside = path[len] == '/';
        return strndup(path, len);
}

/*
 * The denial for the sentence, which names @folder. Entries of allowWrite that do not exist are
 * left out, so the folder has to be made first. NULL: out of memory.
 */
static json_t *about_folder(const json_t *denial, const char *folder, bool inside)
{
        json_t *o = json_copy(cg_json_unconst(denial));
        struct stat st;

        if (!o)
                return NULL;
        if (inside)
                json_object_set_new(o, "path", json_sprintf("files in %s", folder));
        json_object_set_new(o, "how",
                            json_sprintf("%sadd %s to filesystem.allowWrite",
                                         stat(folder, &st) == 0 ? "" : "make it first, and ", folder));
        return o;
}

void cg_denial_log_add(struct cg_denial_log *v, json_t *denial)
{
        cg_auto_json json_t *o = denial;
        cg_auto_json json_t *shown = NULL;
        cg_auto_free char *folder = NULL;
        cg_auto_buf struct cg_buf b = { .max = 16384 };
        bool inside = false;
        const char *line;

        cg_denial_stamp(o);
        line = json_string_value(json_object_get(o, "line"));
        if (!line || is_ignored(v, line))
                return;
        cg_denial_log_debug(v, "%s", line);
        folder = program_folder(v, o, &inside);
        shown = folder ? about_folder(o, folder, inside) : NULL;
        cg_denial_sentence(shown ?: o, &b);
        if (cg_buf_end(&b, NULL) < 0)
                cg_buf_clear(&b);
        write_log(v, o, b.len ? b.data : NULL);
        v->more += (uint64_t)json_integer_value(json_object_get(o, "untold"));
        if (!b.len)
                return;
        for (size_t i = 0; i < v->n; i++) {
                if (strcmp(v->sentences[i], b.data) == 0 ||
                    (folder && v->folders[i] && strcmp(v->folders[i], folder) == 0)) {
                        v->times[i]++;
                        if (inside) {
                                free(v->sentences[i]);
                                v->sentences[i] = cg_buf_steal(&b, NULL);
                        }
                        return;
                }
        }
        if (v->n == CG_DENIAL_LOG_LISTED) {
                v->more++;
                return;
        }
        v->sentences[v->n] = cg_buf_steal(&b, NULL);
        v->folders[v->n] = CG_STEAL(folder);
        v->times[v->n++] = 1;
}

void cg_denial_log_summary(const struct cg_denial_log *v)
{
        for (size_t i = 0; i < v->n; i++)
                if (v->times[i] > 1)
                        dprintf(2, "cellgate sandbox: %s (%" PRIu64 " times)\n", v->sentences[i],
                                v->times[i]);
                else
                        dprintf(2, "cellgate sandbox: %s\n", v->sentences[i]);
        if (v->more)
                dprintf(2, "cellgate sandbox: and %" PRIu64 " more that are not shown\n", v->more);
}
