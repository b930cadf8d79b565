/* Many connections, each with one unanswered request: the next one goes out when the answer has come.
 *
 *   many CONNECTIONS SECONDS HOST PORT < frame
 *
 * stdin: one whole request frame (4-byte length in front). An answer to Produce v7 with an error code, or a connection that
 * ends, ends the program with exit code 1. It prints one JSON object: seconds, requests, quantiles of the time between
 * request and answer in microseconds, the least and the most requests of a connection, and requests answered a second.
 */
#include "frames.h"

#include <fcntl.h>
#include <sys/epoll.h>
#include <sys/resource.h>

#define FRAME_MAX (1 << 20)
#define ANSWER_MAX 512
#define EVENTS 1024
#define MAX_SECONDS 86400
#define TIMEOUT_MS 60000

typedef struct {
    int fd;
    size_t unsent, have;
    double began;
    long answers;
    unsigned char answer[ANSWER_MAX];
} connection_t;

static unsigned char frame[FRAME_MAX];
static size_t frame_size;
static int poller, is_over;
static long requests, under_way, room;
static float *times;
static double start, series[MAX_SECONDS];

static void watch(connection_t *c, int how, uint32_t what) {
    struct epoll_event event = {.events = what, .data.ptr = c};
    if (epoll_ctl(poller, how, c->fd, &event))
        die("epoll_ctl");
}

static void open_connection(connection_t *c, const char *host, int port) {
    c->fd = connect_to(host, port);
    fcntl(c->fd, F_SETFL, O_NONBLOCK);
    watch(c, EPOLL_CTL_ADD, EPOLLIN);
}

/* Writes what is left of the request; waits for the socket if it is full. */
static void send_rest(connection_t *c) {
    ssize_t n = write(c->fd, frame + frame_size - c->unsent, c->unsent);
    if (n < 0 && errno != EAGAIN)
        die("write");
    size_t before = c->unsent;
    c->unsent -= n > 0 ? (size_t)n : 0;
    if (c->unsent)
        watch(c, EPOLL_CTL_MOD, EPOLLIN | EPOLLOUT);
    else if (before != frame_size)
        watch(c, EPOLL_CTL_MOD, EPOLLIN);
}

static void ask(connection_t *c) {
    c->began = now_s();
    c->unsent = frame_size;
    c->have = 0;
    under_way++;
    send_rest(c);
}

/* The error code of the only partition: length, correlation id, topics, name, partitions, index. */
static void check(const connection_t *c) {
    size_t name = (size_t)c->answer[12] << 8 | c->answer[13], at = 14 + name + 4 + 4;
    int code = (int16_t)(c->answer[at] << 8 | c->answer[at + 1]);
    if (code) {
        fprintf(stderr, "Produce answered with error code %d after %ld requests\n", code, requests);
        exit(1);
    }
}

static void answered(connection_t *c) {
    double now = now_s();
    check(c);
    under_way--;
    if (requests == room) {
        times = realloc(times, sizeof *times * (room = room ? room * 2 : 1 << 20));
        if (!times)
            die("memory");
    }
    times[requests++] = (now - c->began) * 1e6;
    c->answers++;
    size_t second = now - start;
    if (second < MAX_SECONDS)
        series[second]++;
    if (!is_over)
        ask(c);
}

static void receive(connection_t *c) {
    ssize_t n = read(c->fd, c->answer + c->have, ANSWER_MAX - c->have);
    if (n < 0 && errno == EAGAIN)
        return;
    if (n <= 0)
        die("read");
    c->have += n;
    if (c->have >= 4 && c->have >= 4 + be32(c->answer))
        answered(c);
    else if (c->have == ANSWER_MAX) {
        fprintf(stderr, "an answer is longer than %d bytes\n", ANSWER_MAX);
        exit(1);
    }
}

static void report(connection_t *all, long count) {
    double seconds = now_s() - start;
    long least = all[0].answers, most = all[0].answers;
    for (long i = 1; i < count; i++) {
        least = all[i].answers < least ? all[i].answers : least;
        most = all[i].answers > most ? all[i].answers : most;
    }
    qsort(times, requests, sizeof *times, compare);
    printf("{\"seconds\": %.6f, \"requests\": %ld, \"least\": %ld, \"most\": %ld", seconds, requests, least, most);
    const double quantiles[] = {0.5, 0.99, 0.999};
    const char *names[] = {"p50_us", "p99_us", "p999_us"};
    for (int i = 0; i < 3; i++)
        printf(", \"%s\": %.1f", names[i], requests ? times[(long)(requests * quantiles[i])] : 0.0);
    printf(", \"series\": [");
    for (int i = 0; i + 1 <= seconds && i < MAX_SECONDS; i++)
        printf("%s%.0f", i ? ", " : "", series[i]);
    printf("]}\n");
}

int main(int argc, char **argv) {
    long count = argc == 5 ? atol(argv[1]) : 0;
    double seconds = argc == 5 ? atof(argv[2]) : 0;
    if (count < 1 || seconds <= 0) {
        fprintf(stderr, "usage: many CONNECTIONS SECONDS HOST PORT < frame\n");
        return 2;
    }
    struct rlimit files;
    getrlimit(RLIMIT_NOFILE, &files);
    files.rlim_cur = files.rlim_max;
    setrlimit(RLIMIT_NOFILE, &files);
    for (ssize_t n; (n = read(0, frame + frame_size, FRAME_MAX - frame_size)) > 0;)
        frame_size += n;
    poller = epoll_create1(0);
    connection_t *all = calloc(count, sizeof *all);
    if (!all || poller < 0)
        die("memory");
    for (long i = 0; i < count; i++)
        open_connection(&all[i], argv[3], atoi(argv[4]));
    start = now_s();
    for (long i = 0; i < count; i++)
        ask(&all[i]);
    static struct epoll_event events[EVENTS];
    while (under_way) {
        is_over = now_s() - start >= seconds;
        int ready = epoll_wait(poller, events, EVENTS, TIMEOUT_MS);
        if (ready <= 0)
            die("epoll_wait");
        for (int i = 0; i < ready; i++) {
            if (events[i].events & EPOLLOUT)
                send_rest(events[i].data.ptr);
            if (events[i].events & (EPOLLIN | EPOLLHUP | EPOLLERR))
                receive(events[i].data.ptr);
        }
    }
    report(all, count);
    return 0;
}
