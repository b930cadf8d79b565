/* Transactional producers of librdkafka, a thread each, in one process.
 *
 *   transactions LIBRARY BOOTSTRAP TOPIC PARTITIONS PRODUCERS SECONDS RATE [KEY=VALUE ...]
 *
 * Each producer repeats: begin a transaction, produce a record of 100 bytes, wait for its delivery, commit. The
 * producers begin RATE transactions a second together, or, if RATE is 0, the next one after each commit. A producer
 * that is late begins at once. SECONDS may be WARM+SECONDS: the WARM seconds and the first InitProducerId do not count.
 * Any error ends the program with exit code 1.
 *
 * It prints one JSON object: seconds, transactions, those with the WARM seconds, quantiles of the commits in
 * microseconds, transactions of each second, and the client's processor seconds.
 */
#include "librdkafka.h"

#include <pthread.h>
#include <sys/resource.h>

#define TIMEOUT_MS 60000
#define PRODUCER 0
#define SIZE 100
#define PRODUCERS_MAX 1000

static struct {
    void *(*conf_new)(void);
    conf_set_t conf_set;
    void *(*new)(int, void *, char *, size_t);
    void *(*topic_new)(void *, const char *, void *);
    int (*produce)(void *, int32_t, int, void *, size_t, const void *, size_t, void *);
    int (*flush)(void *, int);
    int (*last_error)(void);
    const char *(*err2str)(int);
    const char *(*error_string)(const void *);
    void *(*init_transactions)(void *, int);
    void *(*begin_transaction)(void *);
    void *(*commit_transaction)(void *, int);
} rd;

static struct {
    const char *bootstrap, *topic;
    int partitions, producers, argc;
    char **argv, *value;
    double warm, seconds, rate, start;
} wanted;

typedef struct {
    int number;
    void *client, *topic;
    long done, all, room;
    float *times;
    double *series;
} producer_t;

static pthread_barrier_t ready, begin;

static void check(const char *what, void *error) {
    if (error)
        die(what, rd.error_string(error));
}

static void open_library(const char *path) {
    void *library = opened(path);
#define BIND(name) bind_to(library, &rd.name, #name)
    BIND(conf_new), BIND(conf_set), BIND(new), BIND(topic_new), BIND(produce), BIND(flush), BIND(last_error);
    BIND(err2str), BIND(error_string), BIND(init_transactions), BIND(begin_transaction), BIND(commit_transaction);
}

static void make(producer_t *own) {
    char why[512], id[64];
    void *conf = rd.conf_new();
    configure(rd.conf_set, conf, wanted.bootstrap, wanted.argc, wanted.argv);
    snprintf(id, sizeof id, "bench-%d", own->number);
    if (rd.conf_set(conf, "transactional.id", id, why, sizeof why))
        die("transactional.id", why);
    own->client = rd.new(PRODUCER, conf, why, sizeof why);
    if (!own->client)
        die("client", why);
    check("init_transactions", rd.init_transactions(own->client, TIMEOUT_MS));
    own->topic = rd.topic_new(own->client, wanted.topic, NULL);
    own->room = (long)(wanted.seconds * 2000) + 1;
    own->times = calloc(own->room, sizeof *own->times);
    own->series = calloc((size_t)wanted.seconds + 2, sizeof *own->series);
    if (!own->topic || !own->times || !own->series)
        die("memory", "none left");
}

/* One transaction; returns the seconds of its commit. */
static double transact(producer_t *own) {
    check("begin_transaction", rd.begin_transaction(own->client));
    if (rd.produce(own->topic, own->number % wanted.partitions, COPY, wanted.value, SIZE, NULL, 0, NULL))
        die("produce", rd.err2str(rd.last_error()));
    if (rd.flush(own->client, TIMEOUT_MS))
        die("flush", "the record is left after a minute");
    double begun = now_s();
    check("commit_transaction", rd.commit_transaction(own->client, TIMEOUT_MS));
    return now_s() - begun;
}

static void wait_until(double when) {
    double left = when - now_s();
    if (left > 0) {
        struct timespec t = {(time_t)left, (long)((left - (time_t)left) * 1e9)};
        nanosleep(&t, NULL);
    }
}

static void *work(void *given) {
    producer_t *own = given;
    make(own);
    pthread_barrier_wait(&ready);
    pthread_barrier_wait(&begin);
    double counted = wanted.start + wanted.warm, end = counted + wanted.seconds;
    for (;;) {
        if (wanted.rate) /* The producers' turns are spread evenly. */
            wait_until(wanted.start + (own->all * (double)wanted.producers + own->number) / wanted.rate);
        if (now_s() >= end)
            return NULL;
        double took = transact(own), at = now_s() - counted;
        own->all++;
        if (at < 0 || at >= wanted.seconds)
            continue;
        if (own->done == own->room)
            die("room", "more transactions than expected");
        own->times[own->done++] = took * 1e6;
        own->series[(size_t)at]++;
    }
}

static void report(producer_t *all) {
    long n = 0, whole = 0;
    struct rusage used;
    getrusage(RUSAGE_SELF, &used);
    for (int i = 0; i < wanted.producers; i++)
        n += all[i].done, whole += all[i].all;
    float *times = malloc((n + 1) * sizeof *times);
    double *series = calloc((size_t)wanted.seconds + 2, sizeof *series);
    if (!times || !series || !n)
        die("report", "no transaction was counted");
    long at = 0;
    for (int i = 0; i < wanted.producers; i++) {
        memcpy(times + at, all[i].times, all[i].done * sizeof *times);
        at += all[i].done;
        for (size_t second = 0; second <= (size_t)wanted.seconds; second++)
            series[second] += all[i].series[second];
    }
    double cpu = used.ru_utime.tv_sec + used.ru_stime.tv_sec + (used.ru_utime.tv_usec + used.ru_stime.tv_usec) / 1e6;
    printf("{\"seconds\": %.6f, \"transactions\": %ld, \"transactions_all\": %ld", wanted.seconds, n, whole);
    printf(", \"client_cpu_s\": %.2f", cpu);
    print_quantiles(times, n);
    print_series(series, wanted.seconds);
}

int main(int argc, char **argv) {
    static producer_t all[PRODUCERS_MAX];
    if (argc < 8 || atoi(argv[4]) < 1 || atoi(argv[5]) < 1 || atoi(argv[5]) > PRODUCERS_MAX) {
        fprintf(stderr, "usage: transactions LIBRARY BOOTSTRAP TOPIC PARTITIONS PRODUCERS SECONDS RATE ...\n");
        return 2;
    }
    open_library(argv[1]);
    wanted.bootstrap = argv[2], wanted.topic = argv[3];
    wanted.partitions = atoi(argv[4]), wanted.producers = atoi(argv[5]), wanted.rate = atof(argv[7]);
    char *plus = strchr(argv[6], '+');
    wanted.seconds = atof(plus ? plus + 1 : argv[6]), wanted.warm = plus ? atof(argv[6]) : 0;
    wanted.argc = argc - 8, wanted.argv = argv + 8, wanted.value = bytes_of(SIZE);
    pthread_barrier_init(&ready, NULL, wanted.producers + 1);
    pthread_barrier_init(&begin, NULL, wanted.producers + 1);
    pthread_t threads[PRODUCERS_MAX];
    for (int i = 0; i < wanted.producers; i++) {
        all[i].number = i;
        if (pthread_create(&threads[i], NULL, work, &all[i]))
            die("pthread_create", "no thread");
    }
    pthread_barrier_wait(&ready);
    wanted.start = now_s();
    pthread_barrier_wait(&begin);
    for (int i = 0; i < wanted.producers; i++)
        pthread_join(threads[i], NULL);
    report(all);
    return 0;
}
