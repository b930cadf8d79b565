/* Sends prebuilt Kafka frames and counts the answers, so that the client is not what is measured.
 *
 *   load HOST PORT COUNT INFLIGHT [ADVANCE_AT [RATE]] < frames
 *
 * stdin: one or more whole request frames (4-byte length in front), sent round robin on one connection until COUNT have
 * been sent; at most INFLIGHT are unanswered. With ADVANCE_AT (a Fetch benchmark) the 8 bytes at that offset of the
 * frame are the fetch offset, set to the offset after the last batch of the answer before, until COUNT bytes of answers
 * have come; -1 is none. With RATE no more than that many requests are sent a second. Prints: seconds, requests, bytes
 * sent, bytes received, and median and 99th percentile of the time between request and answer in microseconds.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define MAX_FRAMES 65536
#define READ_SIZE (4 << 20)

static double now_s(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec + t.tv_nsec / 1e9;
}

static void die(const char *what) {
    perror(what);
    exit(1);
}

static uint32_t be32(const unsigned char *p) {
    return (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3];
}

static uint64_t be64(const unsigned char *p) {
    return (uint64_t)be32(p) << 32 | be32(p + 4);
}

static int compare(const void *a, const void *b) {
    float x = *(const float *)a, y = *(const float *)b;
    return (x > y) - (x < y);
}

static int connect_to(const char *host, int port) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(port)};
    int one = 1, fd = socket(AF_INET, SOCK_STREAM, 0);
    if (fd < 0 || inet_pton(AF_INET, host, &address.sin_addr) != 1)
        die("address");
    if (connect(fd, (struct sockaddr *)&address, sizeof address))
        die("connect");
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    return fd;
}

static unsigned char *read_frames(size_t *total) {
    size_t room = 1 << 20, used = 0;
    unsigned char *all = malloc(room);
    for (ssize_t n; (n = read(0, all + used, room - used)) > 0;) {
        used += n;
        if (used == room)
            all = realloc(all, room *= 2);
    }
    *total = used;
    return all;
}

static void report(double seconds, long requests, double sent, double received, float *times, long count) {
    qsort(times, count, sizeof *times, compare);
    printf("{\"seconds\": %.6f, \"requests\": %ld, \"sent\": %.0f, \"received\": %.0f, \"p50_us\": %.1f, \"p99_us\": %.1f}\n",
           seconds, requests, sent, received, count ? times[count / 2] : 0.0, count ? times[(long)(count * 0.99)] : 0.0);
}

/* Fetches one after the other, each from where the last answer ended, until `want` bytes have come. */
static void fetch(int fd, unsigned char *frame, size_t size, size_t at, double want) {
    size_t room = 64 << 20;
    unsigned char *answer = malloc(room);
    float *times = malloc(sizeof(float) * (1 << 22));
    long requests = 0;
    double received = 0, sent = 0, start = now_s();
    while (received < want) {
        double begin = now_s();
        if (write(fd, frame, size) != (ssize_t)size)
            die("write");
        sent += size;
        size_t have = 0, need = 4;
        while (have < need) {
            ssize_t n = read(fd, answer + have, need == 4 ? 4 - have : need - have);
            if (n <= 0)
                die("read");
            have += n;
            if (need == 4 && have == 4) {
                need = 4 + be32(answer);
                if (need > room)
                    answer = realloc(answer, room = need);
            }
        }
        received += have;
        times[requests++] = (now_s() - begin) * 1e6;
        /* Fetch v11, one topic, one partition, read_uncommitted: what stands before the batches has a fixed size but
         * for the topic's name. */
        uint64_t from = be64(frame + at), next = from;
        size_t name = (size_t)answer[22] << 8 | answer[23];
        for (size_t q = 24 + name + 4 + 4 + 2 + 8 * 3 + 4 + 4 + 4; q + 61 <= have && q + 12 + be32(answer + q + 8) <= have;
             q += 12 + be32(answer + q + 8))
            next = be64(answer + q) + be32(answer + q + 23) + 1;
        if (next == from)
            break;
        for (int i = 0; i < 8; i++)
            frame[at + i] = next >> (56 - 8 * i);
    }
    report(now_s() - start, requests, sent, received, times, requests);
}

static void pipeline(int fd, unsigned char *all, size_t total, long count, long inflight, double rate) {
    static size_t starts[MAX_FRAMES], sizes[MAX_FRAMES];
    long frames = 0, sent = 0, answered = 0;
    for (size_t p = 0; p + 4 <= total && frames < MAX_FRAMES; p += sizes[frames++]) {
        starts[frames] = p;
        sizes[frames] = 4 + be32(all + p);
    }
    double *began = malloc(sizeof(double) * count), bytes_sent = 0, bytes_received = 0, start = now_s();
    float *times = malloc(sizeof(float) * count);
    unsigned char *in = malloc(READ_SIZE);
    size_t offset = 0, header = 0, body = 0;
    unsigned char length[4];
    fcntl(fd, F_SETFL, O_NONBLOCK);
    while (answered < count) {
        int early = 0;
        while (sent < count && sent - answered < inflight) {
            if (offset == 0 && rate > 0 && (now_s() - start) * rate < sent) {
                early = 1;
                break;
            }
            long f = sent % frames;
            if (offset == 0)
                began[sent] = now_s();
            ssize_t n = write(fd, all + starts[f] + offset, sizes[f] - offset);
            if (n < 0 && errno == EAGAIN)
                break;
            if (n <= 0)
                die("write");
            bytes_sent += n;
            offset += n;
            if (offset == sizes[f]) {
                offset = 0;
                sent++;
            }
        }
        struct pollfd p = {.fd = fd, .events = POLLIN | (!early && sent < count && sent - answered < inflight ? POLLOUT : 0)};
        int ready = poll(&p, 1, early ? 1 : 60000);
        if (ready == 0 && early)
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
        bytes_received += n;
        for (ssize_t i = 0; i < n;) {
            if (header < 4) {
                length[header++] = in[i++];
                if (header == 4)
                    body = be32(length);
            } else {
                size_t take = (size_t)(n - i) < body ? (size_t)(n - i) : body;
                body -= take;
                i += take;
            }
            if (header == 4 && body == 0) {
                times[answered] = (now_s() - began[answered]) * 1e6;
                answered++;
                header = 0;
            }
        }
    }
    report(now_s() - start, count, bytes_sent, bytes_received, times, count);
}

int main(int argc, char **argv) {
    if (argc < 5) {
        fprintf(stderr, "usage: load HOST PORT COUNT INFLIGHT [ADVANCE_AT] < frames\n");
        return 2;
    }
    size_t total;
    unsigned char *all = read_frames(&total);
    int fd = connect_to(argv[1], atoi(argv[2]));
    if (argc > 5 && atol(argv[5]) >= 0)
        fetch(fd, all, 4 + be32(all), atol(argv[5]), atof(argv[3]));
    else
        pipeline(fd, all, total, atol(argv[3]), atol(argv[4]), argc > 6 ? atof(argv[6]) : 0);
    return 0;
}
