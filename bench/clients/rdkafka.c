/* A client of librdkafka with its default settings: what most users of C, Python, Go and .NET run.
 *
 *   rdkafka LIBRARY produce  BOOTSTRAP TOPIC SIZE SECONDS [KEY=VALUE ...]        as fast as its queue takes records
 *   rdkafka LIBRARY pingpong BOOTSTRAP TOPIC SIZE SECONDS [KEY=VALUE ...]        each record waits for the one before
 *   rdkafka LIBRARY rate     BOOTSTRAP TOPIC SIZE SECONDS RATE [KEY=VALUE ...]   RATE records a second
 *   rdkafka LIBRARY fetch    BOOTSTRAP TOPIC END SECONDS [KEY=VALUE ...]         offsets 0 to END, again and again
 *
 * SECONDS may be WARM+SECONDS: the same client first works for WARM seconds that do not count, so that neither connecting
 * nor an id for the producer is measured. Everything goes to partition 0. A record that is not delivered, or an error of the consumer, ends the program with exit
 * code 1. It prints one JSON object: seconds, records, bytes of values, both with those of the WARM seconds, quantiles in
 * microseconds from produce() to the delivery report, bytes of values a second, and the client's processor seconds.
 */
#include "librdkafka.h"

#include <sys/resource.h>
#include <sys/types.h>

#define BATCH 10000
#define PRODUCER 0
#define CONSUMER 1
#define FROM_BEGINNING -2
#define QUEUE_FULL -184
#define PARTITION_EOF -191
#define TIMEOUT_MS 60000

typedef struct {
    int err;
    void *topic;
    int32_t partition;
    void *payload;
    size_t len;
    void *key;
    size_t key_len;
    int64_t offset;
    void *opaque;
} message_t;

static struct {
    void *(*conf_new)(void);
    conf_set_t conf_set;
    void (*conf_set_dr_msg_cb)(void *, void (*)(void *, const message_t *, void *));
    void *(*new)(int, void *, char *, size_t);
    void *(*topic_new)(void *, const char *, void *);
    int (*produce)(void *, int32_t, int, void *, size_t, const void *, size_t, void *);
    int (*poll)(void *, int);
    int (*flush)(void *, int);
    int (*last_error)(void);
    const char *(*err2str)(int);
    int (*consume_start)(void *, int32_t, int64_t);
    ssize_t (*consume_batch)(void *, int32_t, int, message_t **, size_t);
    int (*seek)(void *, int32_t, int64_t, int);
    void (*message_destroy)(message_t *);
} rd;

static struct {
    double start, warm, bytes, bytes_all, series[MAX_SECONDS], *began;
    long sent, records, records_all, room, first;
    float *times;
} done;
/* `first` is the number of the first record that counts. */

static void open_library(const char *path) {
    void *library = opened(path);
#define BIND(name) bind_to(library, &rd.name, #name)
    BIND(conf_new), BIND(conf_set), BIND(conf_set_dr_msg_cb), BIND(new), BIND(topic_new), BIND(produce), BIND(poll);
    BIND(flush), BIND(last_error), BIND(err2str), BIND(consume_start), BIND(consume_batch), BIND(seek);
    BIND(message_destroy);
}

static void count(size_t bytes) {
    size_t second = now_s() - done.start;
    if (second < MAX_SECONDS)
        done.series[second] += bytes;
    done.bytes += bytes, done.bytes_all += bytes;
    done.records++, done.records_all++;
}

/* Begins to count anew once the WARM seconds are over. */
static void end_of_warming(void) {
    double now = now_s();
    if (!done.warm || now - done.start < done.warm)
        return;
    done.start = now, done.warm = 0, done.bytes = 0, done.records = 0, done.first = done.sent;
    memset(done.series, 0, sizeof done.series);
}

/* A delivery report; the opaque value is the record's number, whose times are kept where latency is measured. */
static void delivered(void *client, const message_t *message, void *opaque) {
    (void)client, (void)opaque;
    if (message->err)
        die("a record was not delivered", rd.err2str(message->err));
    if (done.times)
        done.times[(intptr_t)message->opaque] = (now_s() - done.began[(intptr_t)message->opaque]) * 1e6;
    count(message->len);
}

static void *new_client(int kind, const char *bootstrap, int argc, char **argv) {
    char why[512];
    void *conf = rd.conf_new();
    configure(rd.conf_set, conf, bootstrap, argc, argv);
    if (kind == PRODUCER)
        rd.conf_set_dr_msg_cb(conf, delivered);
    void *client = rd.new(kind, conf, why, sizeof why);
    if (!client)
        die("client", why);
    return client;
}

/* Sends the next record; waits while the queue is full. */
static void send_one(void *client, void *topic, void *value, size_t size) {
    if (done.times)
        done.began[done.sent] = now_s();
    while (rd.produce(topic, 0, COPY, value, size, NULL, 0, (void *)(intptr_t)done.sent)) {
        if (rd.last_error() != QUEUE_FULL)
            die("produce", rd.err2str(rd.last_error()));
        rd.poll(client, 10);
    }
    done.sent++;
}

static void keep_times(long room) {
    done.room = room;
    done.times = calloc(room, sizeof *done.times);
    done.began = calloc(room, sizeof *done.began);
    if (!done.times || !done.began)
        die("memory", "none left");
}

static void produce(void *client, void *topic, void *value, size_t size, double seconds, int waits, double rate) {
    if (waits || rate)
        keep_times((long)((done.warm + seconds + 1) * (rate ? rate : 100000)) + 1);
    done.start = now_s();
    while ((done.warm || now_s() - done.start < seconds) && (!done.room || done.sent < done.room)) {
        end_of_warming();
        if (rate && (now_s() - done.start) * rate < done.sent - done.first) {
            rd.poll(client, 1);
            continue;
        }
        send_one(client, topic, value, size);
        if (waits)
            while (done.records_all < done.sent)
                rd.poll(client, 100);
        else if (done.sent % 100 == 0 || rate)
            rd.poll(client, 0);
    }
    if (rd.flush(client, TIMEOUT_MS))
        die("flush", "records are left after a minute");
}

static void fetch(void *topic, int64_t end, double seconds) {
    static message_t *batch[BATCH];
    if (rd.consume_start(topic, 0, FROM_BEGINNING))
        die("consume_start", rd.err2str(rd.last_error()));
    done.start = now_s();
    double last = done.start;
    while (done.warm || now_s() - done.start < seconds) {
        end_of_warming();
        ssize_t found = rd.consume_batch(topic, 0, 100, batch, BATCH);
        int again = 0;
        for (ssize_t i = 0; i < found; i++) {
            if (batch[i]->err && batch[i]->err != PARTITION_EOF)
                die("consumer", rd.err2str(batch[i]->err));
            if (!batch[i]->err)
                count(batch[i]->len);
            again |= batch[i]->offset >= end - 1;
            rd.message_destroy(batch[i]);
        }
        if (found > 0)
            last = now_s();
        if (now_s() - last > TIMEOUT_MS / 1000)
            die("consumer", "no record for a minute");
        if (again && rd.seek(topic, 0, 0, TIMEOUT_MS))
            die("seek", rd.err2str(rd.last_error()));
    }
}

static void report(void) {
    double seconds = now_s() - done.start;
    struct rusage used;
    getrusage(RUSAGE_SELF, &used);
    double cpu = used.ru_utime.tv_sec + used.ru_stime.tv_sec + (used.ru_utime.tv_usec + used.ru_stime.tv_usec) / 1e6;
    printf("{\"seconds\": %.6f, \"records\": %ld, \"bytes\": %.0f, \"client_cpu_s\": %.2f", seconds, done.records, done.bytes, cpu);
    printf(", \"records_all\": %ld, \"bytes_all\": %.0f", done.records_all, done.bytes_all);
    long n = done.sent - done.first;
    if (done.times && n)
        print_quantiles(done.times + done.first, n);
    print_series(done.series, seconds);
}

int main(int argc, char **argv) {
    if (argc < 7) {
        fprintf(stderr, "usage: rdkafka LIBRARY produce|pingpong|rate|fetch BOOTSTRAP TOPIC SIZE|END SECONDS ...\n");
        return 2;
    }
    const char *mode = argv[2];
    int has_rate = !strcmp(mode, "rate"), is_fetch = !strcmp(mode, "fetch"), given = 7 + has_rate;
    if (argc < given)
        return 2;
    open_library(argv[1]);
    void *client = new_client(is_fetch ? CONSUMER : PRODUCER, argv[3], argc - given, argv + given);
    void *topic = rd.topic_new(client, argv[4], NULL);
    char *plus = strchr(argv[6], '+');
    double seconds = atof(plus ? plus + 1 : argv[6]);
    done.warm = plus ? atof(argv[6]) : 0;
    if (!topic)
        die("topic", rd.err2str(rd.last_error()));
    if (is_fetch) {
        fetch(topic, atoll(argv[5]), seconds);
    } else {
        size_t size = atol(argv[5]);
        char *value = bytes_of(size);
        produce(client, topic, value, size, seconds, !strcmp(mode, "pingpong"), has_rate ? atof(argv[7]) : 0);
    }
    report();
    return 0;
}
