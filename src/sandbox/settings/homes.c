/* See homes.h. */
#include "sandbox/settings/homes.h"

#include "base/account.h"
#include "base/json.h"
#include "sandbox/names/names.h"
#include "sandbox/names/present.h"
#include "sandbox/settings/name_links.h"
#include "sandbox/names/stamps.h"

/* Rows as text: a letter for each, 'a' for none of these bits. */
#define KINDS  (CG_NAME_WRITE | CG_NAME_HIDE)
#define LINKED (KINDS + 1)

static json_t *present_json(const struct cg_present *p)
{
        json_t *links = json_array();
        cg_auto_free char *rows = NULL;
        size_t n;

        cg_names(&n);
        rows = calloc(n + 1, 1);
        for (size_t i = 0; rows && i < n; i++)
                rows[i] = (char)('a' + (p->rows[i] & KINDS) + (p->rows[i] & CG_PRESENT_LINK ? LINKED : 0));
        for (size_t i = 0; i < p->n_links; i++) {
                if (json_array_append_new(links, json_string(p->links[i])) < 0) {
                        json_decref(links);
                        return NULL;
                }
        }
        return json_pack("{s:s, s:s, s:o}", "folder", p->folder, "rows", rows, "links", links);
}

static int add_home(json_t *homes, const char *home, struct cg_stamps *stamps)
{
        cg_auto_present struct cg_present p = { 0 };
        struct cg_err err;

        if (cg_present_scan(&p, home, KINDS, stamps, &err) < 0 || cg_name_links_find(&p, stamps, &err) < 0)
                return -1;
        return json_array_append_new(homes, present_json(&p));
}

json_t *cg_homes_scan(const char *home, struct cg_stamps *stamps)
{
        cg_auto_json json_t *homes = json_array();
        char account[PATH_MAX];

        if (home && add_home(homes, home, stamps) < 0)
                return NULL;
        if (cg_account_home(account) && (!home || strcmp(home, account) != 0) &&
            add_home(homes, account, stamps) < 0)
                return NULL;
        return CG_STEAL(homes);
}

static bool read_present(const json_t *home, struct cg_present *p)
{
        const char *rows = json_string_value(json_object_get(home, "rows"));
        const json_t *links = json_object_get(home, "links"), *link;
        size_t n, i;

        cg_names(&n);
        if (!rows || strlen(rows) != n)
                return false;
        p->folder = strdup(json_string_value(json_object_get(home, "folder")));
        p->rows = malloc(n);
        p->links = calloc(json_array_size(links) + 1, sizeof(*p->links));
        if (!p->folder || !p->rows || !p->links)
                return false;
        for (i = 0; i < n; i++) {
                unsigned int bits = (unsigned char)rows[i] - 'a';

                p->rows[i] = (unsigned char)((bits & KINDS) | (bits & LINKED ? CG_PRESENT_LINK : 0));
        }
        json_array_foreach(links, i, link) {
                p->links[i] = strdup(json_string_value(link) ?: "");
                if (!p->links[i])
                        return false;
                p->n_links++;
        }
        return true;
}

bool cg_homes_get(const json_t *homes, const char *folder, struct cg_present *p)
{
        const json_t *home;
        size_t i;

        json_array_foreach(homes, i, home) {
                const char *of = json_string_value(json_object_get(home, "folder"));

                if (!of || strcmp(of, folder) != 0)
                        continue;
                if (read_present(home, p))
                        return true;
                cg_present_fini(p);
        }
        return false;
}
