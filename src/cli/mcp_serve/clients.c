/*
 * `cellgate mcp serve`: which client a session is of. Over HTTP a process may serve several of one
 * owner: all that have no connection, and those that name a session of another one's. A client is
 * the name that it gives itself. Used by the I/O thread, under the lock.
 */
#include "cli/mcp_serve/mcp_serve.h"

#include "base/json.h"

/* One session has at most so many, since each is told of all others. */
#define MAX_CLIENTS 64u

static const char *opener(const struct cg_serve_session *s)
{
        return s->sv->opts.new_sessions ? s->users.opener : s->sv->proto.handshake.client;
}

bool cg_serve_is_users(const struct cg_serve_session *s)
{
        const char *me = s->sv->proto.peer.client;

        return !s->sv->opts.id_begin[0] || strcmp(opener(s), me) == 0 || json_object_get(s->users.others, me);
}

/* Lets the client of the last request use the session, and has all who use it told so. */
static void share(struct cg_serve_session *s)
{
        cg_auto_json json_t *all = json_pack("{s:b, s:b}", opener(s), 1, s->sv->proto.peer.client, 1);
        const char *name;
        json_t *told;

        json_object_foreach(s->users.others, name, told)
                json_object_set_new(all, name, json_true());
        json_object_update(s->users.others, all);
}

void cg_serve_add_shared(struct cg_serve_session *s, struct cg_buf *b)
{
        const char *me = s->sv->proto.peer.client, *name, *between = "This session is shared with ";
        json_t *told;

        if (!json_is_true(json_object_get(s->users.others, me)))
                return;
        json_object_set_new(s->users.others, me, json_false());
        json_object_foreach(s->users.others, name, told) {
                if (strcmp(name, me) == 0)
                        continue;
                cg_buf_adds(b, between);
                cg_json_quote(b, name, strlen(name));
                between = ", ";
        }
        cg_buf_adds(b, ": cells of all of them see and change its variables.");
}

/*
 * Two agents do not meet by accident, such as by an id in a text that both read. A client without a
 * name cannot be told apart: it has shown that it knows the id.
 */
int cg_serve_check_client(struct cg_serve_session *s, const char *args, struct cg_err *err)
{
        struct cg_slice text = { args, strlen(args) }, v;
        const char *me = s->sv->proto.peer.client;

        if (cg_serve_is_users(s))
                return 0;
        if (cg_json_member(text, "attach", &v, err) < 0)
                return -1;
        if (json_object_size(s->users.others) >= MAX_CLIENTS)
                return cg_fail(err, CG_E_LIMIT, "%u clients share this session, as many as may", MAX_CLIENTS);
        if (cg_slice_is(v, "true"))
                share(s);
        else if (!*me || !*opener(s))
                json_object_set_new(s->users.others, me, json_false());
        else
                return cg_fail(
                        err, CG_E_STATE,
                        "the session is of another client, \"%s\": execute_ipython_cell with this "
                        "session_id and attach: true shares it, and both are told; leave session_id out for "
                        "one of your own",
                        opener(s));
        return 0;
}
