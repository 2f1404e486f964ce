/*
 * Calls of the tool `echo` by libcurl alone, over one connection. usage: direct_http N URL.
 * It prints the seconds of each call as a JSON list.
 */
#include <curl/curl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

struct text {
        char data[4096];
        size_t len;
};

static double now(void)
{
        struct timespec t;

        clock_gettime(CLOCK_MONOTONIC, &t);
        return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static size_t take(char *data, size_t size, size_t n, void *arg)
{
        struct text *t = arg;

        if (n > sizeof(t->data) - 1 - t->len)
                return 0;
        memcpy(t->data + t->len, data, n);
        t->len += n;
        t->data[t->len] = 0;
        return size * n;
}

int main(int argc, char **argv)
{
        long n = argc == 3 ? strtol(argv[1], NULL, 10) : 0;
        struct curl_slist *headers = curl_slist_append(NULL, "Content-Type: application/json");
        CURL *curl = curl_easy_init();
        struct text answer;

        if (n <= 0 || !curl)
                return 2;
        headers = curl_slist_append(headers, "Accept: application/json, text/event-stream");
        curl_easy_setopt(curl, CURLOPT_URL, argv[2]);
        curl_easy_setopt(curl, CURLOPT_PROXY, "");
        curl_easy_setopt(curl, CURLOPT_HTTPHEADER, headers);
        curl_easy_setopt(curl, CURLOPT_WRITEFUNCTION, take);
        curl_easy_setopt(curl, CURLOPT_WRITEDATA, &answer);
        for (long i = 0; i <= n; i++) { /* the first one connects */
                double start = now();
                char request[200];

                snprintf(
                        request, sizeof(request),
                        "{\"jsonrpc\":\"2.0\",\"id\":%ld,\"method\":\"tools/call\",\"params\":{\"name\":\"echo\","
                        "\"arguments\":{\"text\":\"hello\"}}}",
                        i);
                answer.len = 0;
                curl_easy_setopt(curl, CURLOPT_POSTFIELDS, request);
                if (curl_easy_perform(curl) != CURLE_OK || answer.len == 0 || !strstr(answer.data, "hello"))
                        return 1;
                if (i > 0)
                        printf("%s%.9f", i > 1 ? ", " : "[", now() - start);
        }
        puts("]");
        curl_easy_cleanup(curl);
        curl_slist_free_all(headers);
        return 0;
}
