/* Plain C baseline: scattered pages, one page per fi_writemsg, in random order
 * at both ends, the transmit queue kept full and both CQs spun. The clock stops
 * at the target's answer to a message sent after the last page. Prints one line
 * of JSON. */
#include "fabric_pair.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <rdma/fi_errno.h>
#include <rdma/fi_rma.h>

enum {
	POLL_COUNT = 64,
	END_BYTES = 8, /* size of the last message and of its answer */
};

/* Page i of the run goes from source[i % count] to destination[i % count].
 * Made before fork(), so both processes hold the same plan. */
struct plan {
	size_t count; /* pages that the pool holds */
	uint32_t *source;
	uint32_t *destination;
};

/* Operation slots: contexts that must stay alive until their completion. */
struct slots {
	struct fi_context2 *contexts;
	uint32_t *free;
	size_t free_count;
};

struct result {
	double wall_s;
	double cpu_s;
};

static uint64_t random_next(uint64_t *state)
{
	*state ^= *state << 13;
	*state ^= *state >> 7;
	*state ^= *state << 17;
	return *state;
}

static uint32_t *permutation_alloc(size_t count, uint64_t *state)
{
	uint32_t *order = calloc(count, sizeof(*order));
	uint32_t kept;
	size_t other;

	if (!order)
		return NULL;
	for (size_t i = 0; i < count; i++)
		order[i] = (uint32_t) i;
	for (size_t i = count - 1; i > 0; i--) {
		other = (size_t) (random_next(state) % (i + 1));
		kept = order[i];
		order[i] = order[other];
		order[other] = kept;
	}
	return order;
}

static void plan_release(struct plan *plan)
{
	free(plan->source);
	free(plan->destination);
}

static int plan_alloc(struct plan *plan, const struct pair_options *options)
{
	uint64_t state = 0x9e3779b97f4a7c15;

	plan->count = options->pool_bytes / options->page_bytes;
	if (plan->count == 0 || plan->count > UINT32_MAX ||
	    options->page_bytes < sizeof(uint64_t))
		return pair_error("page and pool size", -FI_EINVAL);
	plan->source = permutation_alloc(plan->count, &state);
	plan->destination = permutation_alloc(plan->count, &state);
	if (plan->source && plan->destination)
		return 0;
	plan_release(plan);
	return pair_error("calloc", -FI_ENOMEM);
}

static void slots_release(struct slots *slots)
{
	free(slots->contexts);
	free(slots->free);
}

static int slots_alloc(struct slots *slots, size_t count)
{
	slots->contexts = calloc(count, sizeof(*slots->contexts));
	slots->free = calloc(count, sizeof(*slots->free));
	if (!slots->contexts || !slots->free) {
		slots_release(slots);
		return pair_error("calloc", -FI_ENOMEM);
	}
	slots->free_count = count;
	for (size_t i = 0; i < count; i++)
		slots->free[i] = (uint32_t) i;
	return 0;
}

/* Stamp the two ends of a page with its number, never zero. */
static uint64_t stamp(size_t page)
{
	return 0xfab0000000000000 | page;
}

static void pages_stamp(const struct pair *pair, size_t page_bytes)
{
	uint64_t mark;

	for (size_t page = 0; page < pair->pool_bytes / page_bytes; page++) {
		uint8_t *at = pair->pool + page * page_bytes;

		mark = stamp(page);
		memcpy(at, &mark, sizeof(mark));
		memcpy(at + page_bytes - sizeof(mark), &mark, sizeof(mark));
	}
}

static int pages_verify(const struct pair *pair, const struct plan *plan,
			const struct pair_options *options)
{
	size_t count = options->page_count < plan->count ? options->page_count :
							   plan->count;
	uint64_t mark;

	for (size_t i = 0; i < count; i++) {
		const uint8_t *at = pair->pool + (size_t) plan->destination[i] *
							 options->page_bytes;
		const uint8_t *end = at + options->page_bytes - sizeof(mark);

		mark = stamp(plan->source[i]);
		if (memcmp(at, &mark, sizeof(mark)) ||
		    memcmp(end, &mark, sizeof(mark))) {
			fprintf(stderr, "page %zu is not in place\n", i);
			return -FI_EIO;
		}
	}
	return 0;
}

/* Post page `index` of the run. Returns -FI_EAGAIN, silently, when full. */
static ssize_t page_post(struct pair *pair, const struct plan *plan,
			 struct slots *slots, size_t page_bytes, size_t index)
{
	size_t at = index % plan->count;
	uint32_t slot = slots->free[slots->free_count - 1];
	struct iovec local = {
		.iov_base = pair->pool + plan->source[at] * page_bytes,
		.iov_len = page_bytes,
	};
	struct fi_rma_iov remote = {
		.addr = pair->remote_base + plan->destination[at] * page_bytes,
		.len = page_bytes,
		.key = pair->remote_key,
	};
	struct fi_msg_rma message = {
		.msg_iov = &local,
		.desc = &pair->desc,
		.iov_count = 1,
		.addr = pair->peer,
		.rma_iov = &remote,
		.rma_iov_count = 1,
		.context = &slots->contexts[slot],
	};
	ssize_t ret = fi_writemsg(pair->ep, &message, FI_COMPLETION);

	if (ret == 0)
		slots->free_count--;
	return ret;
}

static int pages_write(struct pair *pair, const struct plan *plan,
		       struct slots *slots, const struct pair_options *options)
{
	struct fi_cq_entry entries[POLL_COUNT];
	size_t posted = 0;
	size_t done = 0;
	ssize_t ret;

	while (done < options->page_count) {
		while (posted < options->page_count && slots->free_count) {
			ret = page_post(pair, plan, slots, options->page_bytes,
					posted);
			if (ret == -FI_EAGAIN)
				break;
			if (ret)
				return pair_error("fi_writemsg", (int) ret);
			posted++;
		}
		ret = pair_poll(pair, entries, POLL_COUNT);
		if (ret < 0)
			return (int) ret;
		for (ssize_t i = 0; i < ret; i++) {
			const struct fi_context2 *context =
				entries[i].op_context;

			slots->free[slots->free_count++] =
				(uint32_t) (context - slots->contexts);
		}
		done += (size_t) ret;
	}
	return 0;
}

static int end_recv(struct pair *pair)
{
	return pair_recv(pair, pair->pool_bytes + PAIR_CONTROL_RECV, END_BYTES);
}

static int end_send(struct pair *pair)
{
	return pair_send(pair, pair->pool_bytes + PAIR_CONTROL_SEND, END_BYTES);
}

static int initiate(struct pair *pair, const struct plan *plan,
		    const struct pair_options *options, struct result *result)
{
	struct slots slots = {0};
	double start_s, start_cpu_s;
	double target_cpu_s = 0;
	int ret;

	pages_stamp(pair, options->page_bytes);
	ret = slots_alloc(&slots, pair->info->tx_attr->size);
	if (ret)
		return ret;
	ret = end_recv(pair);
	if (ret)
		goto out;
	ret = pair_swap(pair, &target_cpu_s, &target_cpu_s, sizeof(double));
	if (ret)
		goto out;
	start_cpu_s = pair_cpu_s();
	start_s = pair_now_s();
	ret = pages_write(pair, plan, &slots, options);
	if (ret)
		goto out;
	ret = end_send(pair);
	if (ret)
		goto out;
	ret = pair_wait(pair);
	if (ret)
		goto out;
	result->wall_s = pair_now_s() - start_s;
	result->cpu_s = pair_cpu_s() - start_cpu_s;
	ret = pair_swap(pair, &result->cpu_s, &target_cpu_s, sizeof(double));
	result->cpu_s += target_cpu_s;
out:
	slots_release(&slots);
	return ret;
}

static int serve(struct pair *pair, const struct plan *plan,
		 const struct pair_options *options)
{
	double cpu_s = 0;
	double initiator_cpu_s = 0;
	int ret;

	ret = end_recv(pair);
	if (ret)
		return ret;
	ret = pair_swap(pair, &cpu_s, &initiator_cpu_s, sizeof(double));
	if (ret)
		return ret;
	cpu_s = -pair_cpu_s();
	ret = pair_wait(pair);
	if (ret)
		return ret;
	ret = end_send(pair);
	if (ret)
		return ret;
	ret = pair_wait(pair);
	if (ret)
		return ret;
	cpu_s += pair_cpu_s();
	ret = pair_swap(pair, &cpu_s, &initiator_cpu_s, sizeof(double));
	return ret ? ret : pages_verify(pair, plan, options);
}

static void result_print(const struct pair *pair, const struct result *result,
			 const struct pair_options *options)
{
	double pages = (double) options->page_count;
	uint32_t version = fi_version();

	printf("{\"provider\": \"%s\", \"libfabric\": \"%" PRIu32 ".%" PRIu32
	       "\", \"page_bytes\": %zu, \"page_count\": %zu, "
	       "\"wall_s\": %.6f, \"gigabytes_per_s\": %.4f, "
	       "\"pages_per_s\": %.1f, \"cpu_s\": %.4f}\n",
	       pair->info->fabric_attr->prov_name, FI_MAJOR(version),
	       FI_MINOR(version), options->page_bytes, options->page_count,
	       result->wall_s,
	       pages * (double) options->page_bytes / 1e9 / result->wall_s,
	       pages / result->wall_s, result->cpu_s);
}

int main(int argc, char **argv)
{
	struct pair_options options = {
		.provider = "tcp",
		.pool_bytes = 256 << 20,
		.page_bytes = 65536,
		.page_count = 16384,
	};
	struct result result = {0};
	struct plan plan = {0};
	struct pair pair;
	int ret, close_ret;

	if (pair_options_parse(argc, argv, &options))
		return EXIT_FAILURE;
	if (plan_alloc(&plan, &options))
		return EXIT_FAILURE;
	ret = pair_open(&pair, &options);
	if (ret == 0 && pair.is_target)
		ret = serve(&pair, &plan, &options);
	else if (ret == 0)
		ret = initiate(&pair, &plan, &options, &result);
	if (ret == 0 && !pair.is_target)
		result_print(&pair, &result, &options);
	close_ret = pair_close(&pair);
	plan_release(&plan);
	return ret || close_ret ? EXIT_FAILURE : EXIT_SUCCESS;
}
