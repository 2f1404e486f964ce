/*
 * What the monitor tells the front and the verifier about OAuth: the server's own URI, and where
 * clients get tokens for it (protected resource metadata, RFC 9728).
 */
#include <jansson.h>
#include "base/json.h"
#include "mcp/oauth/parse.h"
#include "mcp_http/monitor.h"

static json_t *words(const char *text)
{
        cg_auto_free char *copy = strdup(text);
        char *at = copy, *word;
        json_t *list = json_array();

        while (copy && (word = strsep(&at, " ")))
                if (*word)
                        json_array_append_new(list, json_string(word));
        return list;
}

int cg_hf_oauth(struct hf_options *o, const char *own_uri, struct cg_err *err)
{
        struct hf_verifier_setup *v = &o->verifier;
        const char *uri = o->public_url ?: own_uri;
        cg_auto_free char *metadata = NULL;
        cg_auto_json json_t *j = NULL;
        char scope[CG_HF_MAX_SCOPE + 16] = "";
        struct cg_oauth_url u;
        int origin;

        if (cg_oauth_url_parse(uri, "the server's URL", &u, err) < 0)
                return -1;
        origin = (int)u.origin_len;
        if (!v->audience[0])
                snprintf(v->audience, sizeof(v->audience), "%s", uri);
        j = json_pack("{s:s, s:[s], s:[s], s:s}", "resource", uri, "authorization_servers", v->issuer,
                      "bearer_methods_supported", "header", "resource_name", "cellgate");
        if (j && v->scope[0])
                json_object_set_new(j, "scopes_supported", words(v->scope));
        metadata = cg_json_text(j, NULL);
        if (!metadata || strlen(metadata) >= sizeof(o->setup.metadata))
                return cg_fail(err, CG_E_NOMEM, "protected resource metadata");
        strcpy(o->setup.metadata, metadata);
        if (v->scope[0])
                snprintf(scope, sizeof(scope), ", scope=\"%s\"", v->scope);
        snprintf(o->setup.challenge, sizeof(o->setup.challenge),
                 "Bearer resource_metadata=\"%.*s" CG_HF_METADATA_PLACE "%s\"%s", origin, uri,
                 strcmp(u.path, "/") == 0 ? "" : u.path, scope);
        return 0;
}
