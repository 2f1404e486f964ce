/*
 * Hosts that a sandbox asks for, entries and ranges of settings: "HOST\nENTRY\nRANGE". Beside
 * memory safety it checks that a host's canonical form is its own, that an entry made of it covers
 * it and nothing next to it, and that no spelling of an address gets past an entry that denies it.
 */
#include <stdio.h>
#include "sandbox/settings/domain.h"
#include "fuzz.h"

static void check_text(const struct cg_host *h)
{
        size_t n = strlen(h->text);

        must(n > 0 && n <= CG_HOST_MAX);
        for (size_t i = 0; i < n; i++)
                must(strchr("abcdefghijklmnopqrstuvwxyz0123456789.-_:", h->text[i]));
        must(h->is_addr || (h->text[n - 1] != '.' && !strchr(h->text, ':')));
}

/* If the canonical name or address is denied, the requested spelling is denied, too. */
static void check_covered(const struct cg_host *h)
{
        struct cg_domains d = { .n = 0 };
        char entry[CG_AUTHORITY_MAX];

        cg_host_authority(h, 443, 0, entry, sizeof(entry));
        if (cg_domains_add(&d, entry, true, NULL) == 0) {
                must(cg_domains_find(&d, h, 443) != NULL);
                must(cg_domains_find(&d, h, 444) == NULL);
        }
        cg_domains_fini(&d);
}

static void host(const char *s, size_t len)
{
        struct cg_host h, again;
        struct cg_err err = { .msg = "" };

        if (cg_host_parse(s, len, &h, &err) < 0) {
                must(err.msg[0] && err.code == CG_E_INVAL);
                return;
        }
        check_text(&h);
        must(cg_host_parse(h.text, strlen(h.text), &again, NULL) == 0);
        must(strcmp(h.text, again.text) == 0 && h.is_addr == again.is_addr);
        if (h.is_addr) {
                must(cg_addr_equal(&h.addr, &again.addr));
                must(cg_addr_class_name(cg_addr_class(&h.addr)) != NULL);
        }
        check_covered(&h);
}

static void entry_and_host(const char *entry, const char *s)
{
        struct cg_domains allow = { .n = 0 }, deny = { .n = 0 };
        struct cg_host h;
        bool known = cg_host_parse(s, strlen(s), &h, NULL) == 0;

        if (cg_domains_add(&allow, entry, false, NULL) == 0) {
                /* The deny list accepts every allow entry, and matches at least as much. */
                must(cg_domains_add(&deny, entry, true, NULL) == 0);
                if (known && cg_domains_find(&allow, &h, 443))
                        must(cg_domains_find(&deny, &h, 443) != NULL);
                if (known && cg_domains_find(&allow, &h, 443) && h.is_addr)
                        must(allow.v[0].kind == CG_DOMAIN_ADDR);
        }
        cg_domains_fini(&allow);
        cg_domains_fini(&deny);
}

static void range(const char *text)
{
        struct cg_range r;

        if (cg_range_parse(text, &r, NULL) == 0)
                must(cg_range_has(&r, &r.addr));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
        char *copy = malloc(size + 1), *second, *third;
        const uint8_t *end = memchr(data, '\n', size);

        if (!copy)
                return 0;
        /* The host with its exact length: it may hold a NUL. */
        host((const char *)data, end ? (size_t)(end - data) : size);
        memcpy(copy, data, size);
        copy[size] = '\0';
        second = strchr(copy, '\n');
        if (second) {
                *second++ = '\0';
                third = strchr(second, '\n');
                if (third) {
                        *third++ = '\0';
                        range(third);
                }
                entry_and_host(second, copy);
        }
        free(copy);
        return 0;
}
