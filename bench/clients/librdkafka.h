/* What the clients of librdkafka share: opening the library, configurations, clocks, quantiles.
 *
 * The library is opened at run time and its functions are declared where they are used: they are its public, stable
 * interface, and wheels of confluent-kafka bring the library without headers.
 */
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define MAX_SECONDS 86400
#define COPY 2

static double now_s(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec + t.tv_nsec / 1e9;
}

static void die(const char *what, const char *why) {
    fprintf(stderr, "%s: %s\n", what, why);
    exit(1);
}

static void bind_to(void *library, void *field, const char *name) {
    char whole[64];
    snprintf(whole, sizeof whole, "rd_kafka_%s", name);
    void *found = dlsym(library, whole);
    if (!found)
        die(whole, "not in the library");
    memcpy(field, &found, sizeof found);
}

static void *opened(const char *path) {
    void *library = dlopen(path, RTLD_NOW);
    if (!library)
        die("dlopen", dlerror());
    return library;
}

typedef int (*conf_set_t)(void *, const char *, const char *, char *, size_t);

/* Sets bootstrap.servers and the KEY=VALUE arguments. */
static void configure(conf_set_t set, void *conf, const char *bootstrap, int argc, char **argv) {
    char why[512], key[128];
    if (set(conf, "bootstrap.servers", bootstrap, why, sizeof why))
        die("bootstrap.servers", why);
    for (int i = 0; i < argc; i++) {
        char *value = strchr(argv[i], '=');
        if (!value || value - argv[i] >= (long)sizeof key)
            die(argv[i], "is not KEY=VALUE");
        snprintf(key, sizeof key, "%.*s", (int)(value - argv[i]), argv[i]);
        if (set(conf, key, value + 1, why, sizeof why))
            die(argv[i], why);
    }
}

static int compare(const void *a, const void *b) {
    float x = *(const float *)a, y = *(const float *)b;
    return (x > y) - (x < y);
}

/* Prints fields of quantiles in microseconds; sorts the times. */
static void print_quantiles(float *times, long n) {
    qsort(times, n, sizeof *times, compare);
    printf(", \"p50_us\": %.1f, \"p99_us\": %.1f, \"p999_us\": %.1f, \"max_us\": %.1f", times[n / 2],
           times[(long)(n * 0.99)], times[(long)(n * 0.999)], times[n - 1]);
}

static void print_series(const double *series, double seconds) {
    printf(", \"series\": [");
    for (int i = 0; i + 1 <= seconds && i < MAX_SECONDS; i++)
        printf("%s%.0f", i ? ", " : "", series[i]);
    printf("]}\n");
}

static char *bytes_of(size_t size) {
    char *value = malloc(size);
    for (size_t i = 0; i < size; i++)
        value[i] = i * 7 % 251;
    return value;
}
