/* Sends prebuilt Kafka frames and checks the answers, so that the client is not what is measured.
 *
 *   load [OPTIONS] HOST PORT < frames
 *
 *   --count N      send N requests (pipeline), or fetch N bytes of answers
 *   --seconds S    send for S seconds
 *   --inflight N   at most N requests are unanswered; default 5, as in librdkafka and the Java client
 *   --rate R       at most R requests a second
 *   --fetch-at A   a Fetch v11 of one partition: the 8 bytes at A of the frame are the fetch offset, which follows the
 *                  last batch of each answer
 *   --rewind       fetch from offset 0 again at the end of the log
 *
 * stdin: whole request frames (4-byte length in front), sent round robin over one connection. An answer to Produce v7 or
 * Fetch v11 with an error code ends the program with exit code 1. It prints one JSON object: seconds, requests, bytes
 * sent and received, quantiles of the time between request and answer in microseconds, and bytes answered a second.
 */
#include "frames.h"

#include <fcntl.h>
#include <getopt.h>
#include <poll.h>

#define MAX_FRAMES 65536
#define MAX_SECONDS 86400
#define READ_SIZE (4 << 20)
#define HEAD_SIZE 512
#define PRODUCE 0

static struct {
    double count, seconds, rate;
    long inflight, fetch_at;
    int rewind;
} options = {.inflight = 5, .fetch_at = -1};

static struct {
    double start, sent, received, *series;
    long requests, room;
    float *times;
} done;

static void *checked(void *memory) {
    if (!memory)
        die("memory");
    return memory;
}

static uint64_t be64(const unsigned char *p) {
    return (uint64_t)be32(p) << 32 | be32(p + 4);
}

static int16_t be16(const unsigned char *p) {
    return (int16_t)(p[0] << 8 | p[1]);
}

static void refused(const char *what, int code) {
    fprintf(stderr, "%s answered with error code %d after %ld requests\n", what, code, done.requests);
    exit(1);
}

static unsigned char *read_frames(size_t *total) {
    size_t room = 1 << 20, used = 0;
    unsigned char *all = checked(malloc(room));
    for (ssize_t n; (n = read(0, all + used, room - used)) > 0;) {
        used += n;
        if (used == room)
            all = checked(realloc(all, room *= 2));
    }
    *total = used;
    return all;
}

/* Counts an answer: `bytes` are what the series counts. */
static void answered(double began, double bytes) {
    double now = now_s();
    if (done.requests == done.room)
        done.times = checked(realloc(done.times, sizeof(float) * (done.room = done.room ? done.room * 2 : 1 << 16)));
    done.times[done.requests++] = (now - began) * 1e6;
    size_t second = now - done.start;
    if (second < MAX_SECONDS)
        done.series[second] += bytes;
}

static void report(void) {
    double seconds = now_s() - done.start;
    long n = done.requests;
    qsort(done.times, n, sizeof *done.times, compare);
    printf("{\"seconds\": %.6f, \"requests\": %ld, \"sent\": %.0f, \"received\": %.0f", seconds, n, done.sent, done.received);
    const double quantiles[] = {0.5, 0.9, 0.99, 0.999};
    const char *names[] = {"p50_us", "p90_us", "p99_us", "p999_us"};
    for (int i = 0; i < 4; i++)
        printf(", \"%s\": %.1f", names[i], n ? done.times[(long)(n * quantiles[i])] : 0.0);
    printf(", \"max_us\": %.1f, \"series\": [", n ? done.times[n - 1] : 0.0);
    for (int i = 0; i + 1 <= seconds && i < MAX_SECONDS; i++)
        printf("%s%.0f", i ? ", " : "", done.series[i]);
    printf("]}\n");
}

static int is_over(double amount) {
    return (options.count && amount >= options.count) || (options.seconds && now_s() - done.start >= options.seconds);
}

/* Reads one whole answer; its size with the length. */
static size_t read_answer(int fd, unsigned char **answer, size_t *room) {
    size_t have = 0, need = 4;
    while (have < need) {
        ssize_t n = read(fd, *answer + have, need - have);
        if (n <= 0)
            die("read");
        have += n;
        if (need == 4 && have == 4) {
            need = 4 + be32(*answer);
            if (need > *room)
                *answer = checked(realloc(*answer, *room = need));
        }
    }
    return have;
}

/* Fetches one after the other, each from where the last answer ended. */
static void fetch(int fd, unsigned char *frame, size_t size) {
    size_t room = 64 << 20, at = options.fetch_at;
    unsigned char *answer = checked(malloc(room));
    while (!is_over(done.received)) {
        double began = now_s();
        if (write(fd, frame, size) != (ssize_t)size)
            die("write");
        done.sent += size;
        size_t have = read_answer(fd, &answer, &room);
        done.received += have;
        answered(began, have);
        /* Fetch v11: length, correlation id, throttle time, error code, session, topics; then the topic's name, and
         * what stands before the batches has a fixed size in read_uncommitted. */
        size_t name = (size_t)answer[22] << 8 | answer[23], partition = 24 + name + 4;
        if (be16(answer + 12))
            refused("Fetch", be16(answer + 12));
        if (be16(answer + partition + 4))
            refused("Fetch", be16(answer + partition + 4));
        uint64_t from = be64(frame + at), next = from;
        for (size_t q = partition + 4 + 2 + 8 * 3 + 4 + 4 + 4; q + 61 <= have && q + 12 + be32(answer + q + 8) <= have;
             q += 12 + be32(answer + q + 8))
            next = be64(answer + q) + be32(answer + q + 23) + 1;
        if (next == from) {
            if (!options.rewind || from == 0)
                break;
            next = 0;
        }
        for (int i = 0; i < 8; i++)
            frame[at + i] = next >> (56 - 8 * i);
    }
}

/* The error code of the only partition of an answer to Produce v7: correlation id, topics, name, partitions, index. */
static void check_produce(const unsigned char *head, size_t size) {
    size_t name = size >= 10 ? (size_t)be16(head + 8) : 0, at = 10 + name + 4 + 4;
    if (at + 2 > size)
        refused("Produce without a partition", -2);
    if (be16(head + at))
        refused("Produce", be16(head + at));
}

/* The frames to send, and where sending and reading of the pipeline are. */
static struct {
    unsigned char *all, length[4], head[HEAD_SIZE];
    size_t starts[MAX_FRAMES], sizes[MAX_FRAMES], offset, header, body, kept;
    long frames, sent;
    double *began;
    int is_produce, early, blocked, over;
} line;

/* Sends until the limit of unanswered requests, the rate, a full socket or the end. */
static void send_some(int fd) {
    line.early = line.blocked = 0;
    line.over = line.offset == 0 && is_over(line.sent);
    while (!line.over && line.sent - done.requests < options.inflight) {
        if (line.offset == 0 && options.rate > 0 && (now_s() - done.start) * options.rate < line.sent) {
            line.early = 1;
            return;
        }
        long f = line.sent % line.frames;
        if (line.offset == 0)
            line.began[line.sent % options.inflight] = now_s();
        ssize_t n = write(fd, line.all + line.starts[f] + line.offset, line.sizes[f] - line.offset);
        if (n < 0 && errno == EAGAIN) {
            line.blocked = 1;
            return;
        }
        if (n <= 0)
            die("write");
        done.sent += n;
        line.offset += n;
        if (line.offset == line.sizes[f]) {
            line.offset = 0;
            line.sent++;
            line.over = is_over(line.sent);
        }
    }
}

/* Takes bytes of answers; the beginning of each is kept, for its error code. */
static void take_answers(const unsigned char *in, size_t n) {
    for (size_t i = 0; i < n;) {
        if (line.header < 4) {
            line.length[line.header++] = in[i++];
            if (line.header == 4)
                line.body = be32(line.length), line.kept = 0;
        } else {
            size_t take = n - i < line.body ? n - i : line.body;
            size_t keep = take < HEAD_SIZE - line.kept ? take : HEAD_SIZE - line.kept;
            memcpy(line.head + line.kept, in + i, keep);
            line.kept += keep;
            line.body -= take;
            i += take;
        }
        if (line.header == 4 && line.body == 0) {
            if (line.is_produce)
                check_produce(line.head, line.kept);
            answered(line.began[done.requests % options.inflight], line.sizes[done.requests % line.frames]);
            line.header = 0;
        }
    }
}

static void pipeline(int fd, unsigned char *all, size_t total) {
    line.all = all;
    for (size_t p = 0; p + 4 <= total && line.frames < MAX_FRAMES; p += line.sizes[line.frames++]) {
        line.starts[line.frames] = p;
        line.sizes[line.frames] = 4 + be32(all + p);
    }
    line.began = checked(malloc(sizeof(double) * options.inflight));
    line.is_produce = be16(all + 4) == PRODUCE;
    unsigned char *in = checked(malloc(READ_SIZE));
    fcntl(fd, F_SETFL, O_NONBLOCK);
    for (;;) {
        send_some(fd);
        if (line.over && line.sent == done.requests)
            return;
        struct pollfd p = {.fd = fd, .events = POLLIN | (line.blocked ? POLLOUT : 0)};
        int ready = poll(&p, 1, line.early ? 1 : 60000);
        if (ready == 0 && line.early)
            continue;
        if (ready <= 0)
            die("poll");
        if (!(p.revents & (POLLIN | POLLHUP)))
            continue;
        ssize_t n = read(fd, in, READ_SIZE);
        if (n < 0 && errno == EAGAIN)
            continue;
        if (n <= 0)
            die("read");
        done.received += n;
        take_answers(in, n);
    }
}

int main(int argc, char **argv) {
    static const struct option known[] = {
        {"count", 1, 0, 'c'}, {"seconds", 1, 0, 's'}, {"inflight", 1, 0, 'i'}, {"rate", 1, 0, 'r'},
        {"fetch-at", 1, 0, 'f'}, {"rewind", 0, 0, 'w'}, {0, 0, 0, 0},
    };
    for (int o; (o = getopt_long(argc, argv, "", known, 0)) != -1;)
        switch (o) {
        case 'c': options.count = atof(optarg); break;
        case 's': options.seconds = atof(optarg); break;
        case 'i': options.inflight = atol(optarg); break;
        case 'r': options.rate = atof(optarg); break;
        case 'f': options.fetch_at = atol(optarg); break;
        case 'w': options.rewind = 1; break;
        default: return 2;
        }
    if (argc - optind != 2 || options.inflight < 1 || (!options.count && !options.seconds)) {
        fprintf(stderr, "usage: load [--count N | --seconds S] [OPTIONS] HOST PORT < frames\n");
        return 2;
    }
    size_t total;
    unsigned char *all = read_frames(&total);
    if (total < 8) {
        fprintf(stderr, "load: no frame on stdin\n");
        return 2;
    }
    int fd = connect_to(argv[optind], atoi(argv[optind + 1]));
    done.series = checked(calloc(MAX_SECONDS, sizeof *done.series));
    done.start = now_s();
    if (options.fetch_at >= 0)
        fetch(fd, all, 4 + be32(all));
    else
        pipeline(fd, all, total);
    report();
    return 0;
}
