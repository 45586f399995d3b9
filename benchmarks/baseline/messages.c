/* Plain C baseline: ping-pong of one message by fi_send and fi_recv, both CQs
 * spun. Every round trip is timed. Prints one line of JSON. */
#include "fabric_pair.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include <rdma/fi_errno.h>

struct result {
	double *round_trips_s; /* owned by main; iterations entries */
	double wall_s;
	double cpu_s;
};

/* The message leaves from the start of the pool and arrives behind it. */
static int ping(struct pair *pair, size_t message_bytes)
{
	int ret = pair_recv(pair, message_bytes, message_bytes);

	if (ret)
		return ret;
	ret = pair_send(pair, 0, message_bytes);
	return ret ? ret : pair_wait(pair);
}

/* The receive for the next message is posted before this one is answered. */
static int pong(struct pair *pair, size_t message_bytes, bool last)
{
	struct fi_cq_entry entry;
	ssize_t got;
	int ret = 0;

	while (pair->recv_pending) {
		got = pair_poll(pair, &entry, 1);
		if (got < 0)
			return (int) got;
	}
	if (!last)
		ret = pair_recv(pair, message_bytes, message_bytes);
	if (ret)
		return ret;
	ret = pair_send(pair, 0, message_bytes);
	while (ret == 0 && pair->send_pending) {
		got = pair_poll(pair, &entry, 1);
		if (got < 0)
			return (int) got;
	}
	return ret;
}

static size_t warm_up_count(const struct pair_options *options)
{
	return options->iterations / 10 + 1;
}

static int initiate(struct pair *pair, const struct pair_options *options,
		    struct result *result)
{
	double start_s, start_cpu_s, sent_s;
	double target_cpu_s = 0;
	int ret;

	ret = pair_swap(pair, &target_cpu_s, &target_cpu_s, sizeof(double));
	for (size_t i = 0; ret == 0 && i < warm_up_count(options); i++)
		ret = ping(pair, options->message_bytes);
	if (ret)
		return ret;
	start_cpu_s = pair_cpu_s();
	start_s = pair_now_s();
	for (size_t i = 0; i < options->iterations; i++) {
		sent_s = pair_now_s();
		ret = ping(pair, options->message_bytes);
		if (ret)
			return ret;
		result->round_trips_s[i] = pair_now_s() - sent_s;
	}
	result->wall_s = pair_now_s() - start_s;
	result->cpu_s = pair_cpu_s() - start_cpu_s;
	ret = pair_swap(pair, &result->cpu_s, &target_cpu_s, sizeof(double));
	result->cpu_s += target_cpu_s;
	return ret;
}

static int serve(struct pair *pair, const struct pair_options *options)
{
	const size_t warm_up = warm_up_count(options);
	const size_t total = warm_up + options->iterations;
	double initiator_cpu_s = 0;
	double cpu_s = 0;
	int ret;

	ret = pair_recv(pair, options->message_bytes, options->message_bytes);
	if (ret)
		return ret;
	ret = pair_swap(pair, &cpu_s, &initiator_cpu_s, sizeof(double));
	for (size_t i = 0; ret == 0 && i < total; i++) {
		if (i == warm_up)
			cpu_s = -pair_cpu_s();
		ret = pong(pair, options->message_bytes, i + 1 == total);
	}
	if (ret)
		return ret;
	cpu_s += pair_cpu_s();
	return pair_swap(pair, &cpu_s, &initiator_cpu_s, sizeof(double));
}

static int compare(const void *left, const void *right)
{
	double a = *(const double *) left;
	double b = *(const double *) right;

	return (a > b) - (a < b);
}

static void result_print(const struct pair *pair, const struct result *result,
			 const struct pair_options *options)
{
	size_t count = options->iterations;
	uint32_t version = fi_version();

	qsort(result->round_trips_s, count, sizeof(double), compare);
	printf("{\"provider\": \"%s\", \"libfabric\": \"%" PRIu32 ".%" PRIu32
	       "\", \"message_bytes\": %zu, \"iterations\": %zu, "
	       "\"p50_us\": %.3f, \"p99_us\": %.3f, "
	       "\"wall_s\": %.6f, \"cpu_s\": %.4f}\n",
	       pair->info->fabric_attr->prov_name, FI_MAJOR(version),
	       FI_MINOR(version), options->message_bytes, count,
	       result->round_trips_s[count / 2] * 1e6,
	       result->round_trips_s[count * 99 / 100] * 1e6, result->wall_s,
	       result->cpu_s);
}

int main(int argc, char **argv)
{
	struct pair_options options = {
		.provider = "tcp",
		.message_bytes = 8,
		.iterations = 10000,
	};
	struct result result = {0};
	struct pair pair;
	int ret, close_ret;

	if (pair_options_parse(argc, argv, &options))
		return EXIT_FAILURE;
	options.pool_bytes = 2 * options.message_bytes;
	result.round_trips_s = calloc(options.iterations, sizeof(double));
	if (!result.round_trips_s) {
		pair_error("calloc", -FI_ENOMEM);
		return EXIT_FAILURE;
	}
	ret = pair_open(&pair, &options);
	if (ret == 0 && pair.is_target)
		ret = serve(&pair, &options);
	else if (ret == 0)
		ret = initiate(&pair, &options, &result);
	if (ret == 0 && !pair.is_target)
		result_print(&pair, &result, &options);
	close_ret = pair_close(&pair);
	free(result.round_trips_s);
	return ret || close_ret ? EXIT_FAILURE : EXIT_SUCCESS;
}
