#include "engine.h"

#include "connections.h"
#include "frame.h"
#include "question.h"
#include "region.h"
#include "transfer.h"

#include <rdma/fi_errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#define COMMAND_RING    1024u
#define COMPLETION_RING 4096u
#define STRIPE_BYTES    (1ull << 20)

static void engine_defaults(struct fab_options *options)
{
	if (!options->worker_count)
		options->worker_count = 1;
	if (!options->frame_bytes)
		options->frame_bytes = 65536 + 64;
	if (!options->receive_count)
		options->receive_count = 64;
	if (!options->stripe_bytes)
		options->stripe_bytes = STRIPE_BYTES;
	if (!options->quantum)
		options->quantum = 16;
	if (!options->spin_ns)
		options->spin_ns = 200000;
	if (!options->nap_ns)
		options->nap_ns = 2000000;
	if (!options->peer_timeout_ns)
		options->peer_timeout_ns = 10000000000ull;
	if (!options->frame_window_bytes)
		options->frame_window_bytes = 64ull << 20;
}

static int engine_copy_string(const char **string)
{
	if (!*string)
		return 0;
	*string = strdup(*string);
	return *string ? 0 : -FI_ENOMEM;
}

static int engine_copy_options(struct fab_engine *engine,
			       const struct fab_options *options)
{
	struct fab_options *mine = &engine->options;
	const char *source = options->source;
	int ret;

	*mine = *options;
	mine->source = NULL;
	mine->plans = NULL; /* each worker has its own */
	ret = engine_copy_string(&mine->provider);
	if (!ret) {
		mine->source = source;
		ret = engine_copy_string(&mine->source);
	}
	engine_defaults(mine);
	return ret;
}

static void names_free(const char *const *names, uint32_t count)
{
	for (uint32_t i = 0; names && i < count; i++)
		free((void *) (uintptr_t) names[i]);
	free((void *) (uintptr_t) names);
}

static int names_copy(const char *const **names, const char *const *like,
		      uint32_t count)
{
	const char **made = calloc(count, sizeof(*made));
	int ret = made ? 0 : -FI_ENOMEM;

	for (uint32_t i = 0; i < count && !ret; i++) {
		made[i] = like ? like[i] : NULL;
		ret = engine_copy_string(&made[i]);
		if (ret)
			made[i] = NULL;
	}
	*names = made;
	return ret;
}

static void plan_destruct(struct fab_plan *plan)
{
	names_free(plan->nics, plan->lane_count);
	names_free(plan->sources, plan->lane_count);
}

static int plan_construct(struct fab_plan *plan, const struct fab_plan *like)
{
	int ret;

	plan->lane_count = like->lane_count;
	plan->cpu = like->cpu;
	ret = names_copy(&plan->nics, like->nics, plan->lane_count);
	if (!ret)
		ret = names_copy(&plan->sources, like->sources,
				 plan->lane_count);
	return ret;
}

static int plans_fit(const struct fab_options *options)
{
	if (options->worker_count > FAB_MAX_WORKERS ||
	    (options->worker_count > 1 && !options->plans))
		return 0;
	for (uint32_t i = 0; options->plans && i < options->worker_count; i++) {
		const struct fab_plan *plan = &options->plans[i];

		if (!plan->lane_count || plan->lane_count > FAB_MAX_LANES ||
		    plan->cpu >= CPU_SETSIZE)
			return 0;
	}
	return 1;
}

/* Never 0. */
static uint64_t engine_token(void)
{
	uint64_t token = 0;

	if (getrandom(&token, sizeof(token), 0) != sizeof(token))
		token = (uintptr_t) &token; /* the address alone is random */
	return token | 1;
}

static int engine_construct_worker(struct fab_engine *engine, uint32_t index,
				   const struct fab_plan *plan)
{
	struct fab_worker *worker = &engine->workers[index];
	int ret;

	pthread_mutex_init(&worker->lock, NULL);
	worker->index = index;
	worker->token = engine_token();
	worker->options = engine->options;
	worker->doorbell = &engine->doorbell;
	worker->sleeper.fd = -1;
	fab_list_construct(&worker->free_peers);
	fab_list_construct(&worker->ready);
	fab_list_construct(&worker->regions);
	fab_list_construct(&worker->strays);
	fab_list_construct(&worker->watches);
	fab_queue_construct(&worker->deferred, sizeof(struct fab_completion));
	fab_queue_construct(&engine->backlogs[index],
			    sizeof(struct fab_command));
	worker->lanes = calloc(plan->lane_count, sizeof(*worker->lanes));
	if (!worker->lanes)
		return -FI_ENOMEM;
	ret = plan_construct(&worker->plan, plan);
	if (!ret)
		ret = fab_ring_construct(&worker->commands, COMMAND_RING,
					 sizeof(struct fab_command));
	if (!ret)
		ret = fab_ring_construct(&worker->completions, COMPLETION_RING,
					 sizeof(struct fab_completion));
	if (!ret)
		ret = fab_wakeup_open(&worker->sleeper);
	return ret;
}

int fab_engine_open(const struct fab_options *options,
		    struct fab_engine **engine)
{
	struct fab_plan any = {.lane_count = 1, .cpu = -1};
	const struct fab_plan *plans = options->plans ? options->plans : &any;
	struct fab_engine *opened;
	int ret;

	if (!plans_fit(options))
		return -FI_EINVAL;
	opened = calloc(1, sizeof(*opened));

	if (!opened)
		return -FI_ENOMEM;
	opened->doorbell.fd = -1;
	fab_list_construct(&opened->regions);
	fab_list_construct(&opened->transfers);
	ret = engine_copy_options(opened, options);
	if (ret)
		goto failed;
	ret = -FI_ENOMEM;
	opened->workers = aligned_alloc(_Alignof(struct fab_worker),
					opened->options.worker_count *
						sizeof(*opened->workers));
	opened->backlogs =
		calloc(opened->options.worker_count, sizeof(*opened->backlogs));
	if (!opened->workers || !opened->backlogs)
		goto failed;
	memset(opened->workers, 0,
	       opened->options.worker_count * sizeof(*opened->workers));
	ret = fab_wakeup_open(&opened->doorbell);
	if (ret)
		goto failed;
	opened->worker_count = opened->options.worker_count;
	for (uint32_t i = 0; i < opened->worker_count && !ret; i++)
		ret = engine_construct_worker(opened, i, &plans[i]);
	for (uint32_t i = 0; i < opened->worker_count && !ret; i++) {
		ret = fab_worker_start(&opened->workers[i]);
		opened->started += !ret;
	}
	if (ret)
		goto failed;
	*engine = opened;
	return 0;
failed:
	fab_engine_close(opened);
	return ret;
}

int fab_engine_fd(const struct fab_engine *engine)
{
	return engine->doorbell.fd;
}

static void engine_flush(struct fab_engine *engine, uint32_t index)
{
	struct fab_queue *backlog = &engine->backlogs[index];
	struct fab_worker *worker = &engine->workers[index];
	struct fab_command *first;

	while ((first = fab_queue_first(backlog)) &&
	       !fab_ring_push(&worker->commands, first))
		fab_queue_drop(backlog);
	if (first)
		atomic_store_explicit(&worker->backlog, 1,
				      memory_order_release);
	fab_wakeup_rouse(&worker->sleeper);
}

int fab_engine_submit(struct fab_engine *engine, uint32_t worker,
		      const struct fab_command *command)
{
	struct fab_queue *backlog = &engine->backlogs[worker];
	int ret;

	if (!backlog->count &&
	    !fab_ring_push(&engine->workers[worker].commands, command)) {
		fab_wakeup_rouse(&engine->workers[worker].sleeper);
		return 0;
	}
	ret = fab_queue_push(backlog, command);
	if (!ret)
		engine_flush(engine, worker);
	return ret;
}

int fab_engine_reserve(struct fab_engine *engine, uint64_t workers,
		       uint32_t count)
{
	for (uint32_t i = 0; i < engine->worker_count; i++) {
		if ((workers >> i & 1) &&
		    fab_queue_reserve(&engine->backlogs[i], count))
			return -FI_ENOMEM;
	}
	return 0;
}

void fab_engine_command(struct fab_engine *engine, uint32_t worker,
			uint32_t kind, uint32_t peer, void *object)
{
	struct fab_command command = {
		.kind = kind,
		.peer = peer,
		.object = object,
	};

	(void) fab_engine_submit(engine, worker, &command);
}

static void engine_free_lent(struct fab_engine *engine)
{
	while (engine->lent) {
		struct fab_frame *frame = engine->lent;

		engine->lent = frame->next;
		free(frame);
	}
}

static void engine_lend(struct fab_engine *engine, const void *payload)
{
	struct fab_frame *frame = fab_frame_of(payload);

	atomic_fetch_sub_explicit(frame->held, FAB_FRAME_CHARGE(frame),
				  memory_order_relaxed);
	frame->next = engine->lent;
	engine->lent = frame;
}

/* What several workers say of one thing becomes one completion; 0: not yet. */
static int engine_gather(struct fab_engine *engine,
			 struct fab_completion *completion)
{
	switch (completion->kind) {
	case FAB_REGION_REGISTERED:
	case FAB_REGION_DEREGISTERED:
		return fab_region_gather(completion);
	case FAB_TRANSFER_DONE:
	case FAB_TRANSFER_QUIET:
		return fab_transfer_gather(engine, completion);
	case FAB_PEER_ADDED:
	case FAB_PEER_REMOVED:
	case FAB_PEER_FAILED:
	case FAB_PATH_FAILED:
	case FAB_PATHS_DOWN:
	case FAB_TRANSFER_ARRIVED:
		return fab_route_gather(engine, completion);
	case FAB_QUESTION:
		fab_question_pass(
			engine,
			(struct fab_question *) (uintptr_t) completion->token);
		return 0;
	default:
		return 1;
	}
}

int fab_engine_reap(struct fab_engine *engine,
		    struct fab_completion *completions, int capacity)
{
	int count = 0;

	engine_free_lent(engine);
	fab_wakeup_clear(&engine->doorbell);
	for (uint32_t i = 0; i < engine->worker_count; i++) {
		struct fab_ring *ring = &engine->workers[i].completions;

		if (engine->backlogs[i].count)
			engine_flush(engine, i);
		while (count < capacity &&
		       !fab_ring_pop(ring, &completions[count])) {
			if (completions[count].data)
				engine_lend(engine, completions[count].data);
			count += engine_gather(engine, &completions[count]);
		}
		/* By exchange, as in wakeup.h: one of both sees the other. */
		if (atomic_exchange_explicit(&engine->workers[i].deferring, 0,
					     memory_order_acq_rel))
			fab_wakeup_rouse(&engine->workers[i].sleeper);
	}
	if (count == capacity)
		fab_wakeup_ring(&engine->doorbell);
	return count;
}

void fab_engine_stop(struct fab_engine *engine)
{
	struct fab_command stop = {.kind = FAB_COMMAND_STOP,
				   .peer = FAB_NO_PEER};

	if (engine->stopped)
		return;
	engine->stopped = 1;
	for (uint32_t i = 0; i < engine->started; i++) {
		/* Without memory for the backlog, wait for the ring. */
		while (fab_engine_submit(engine, i, &stop))
			engine_flush(engine, i);
	}
}

static void engine_drop_command(const struct fab_command *command)
{
	switch (command->kind) {
	case FAB_COMMAND_FRAME:
	case FAB_COMMAND_PEER_ADD:
	case FAB_COMMAND_PEER_BREAK:
	case FAB_COMMAND_PATH_BREAK:
	case FAB_COMMAND_QUESTION:
	case FAB_COMMAND_TRANSFER:
	case FAB_COMMAND_REGISTER:
		free(command->object);
		break;
	case FAB_COMMAND_WATCH:
		fab_watch_free(command->object);
		break;
	default:
		break;
	}
}

static void engine_drop_completion(const struct fab_completion *completion)
{
	if (completion->data)
		free(fab_frame_of(completion->data));
	if (completion->kind == FAB_QUESTION)
		free((void *) (uintptr_t) completion->token);
	free(completion->error);
}

static void engine_destruct_worker(struct fab_engine *engine, uint32_t index)
{
	struct fab_worker *worker = &engine->workers[index];
	struct fab_queue *backlog = &engine->backlogs[index];
	struct fab_completion completion;
	struct fab_command command;
	void *first;

	while (worker->commands.slots &&
	       !fab_ring_pop(&worker->commands, &command))
		engine_drop_command(&command);
	for (; (first = fab_queue_first(backlog)); fab_queue_drop(backlog))
		engine_drop_command(first);
	while (worker->completions.slots &&
	       !fab_ring_pop(&worker->completions, &completion))
		engine_drop_completion(&completion);
	for (; (first = fab_queue_first(&worker->deferred));
	     fab_queue_drop(&worker->deferred))
		engine_drop_completion(first);
	fab_worker_destruct(worker);
	plan_destruct(&worker->plan);
	fab_queue_destruct(backlog);
}

void fab_engine_close(struct fab_engine *engine)
{
	fab_engine_stop(engine);
	for (uint32_t i = 0; i < engine->started; i++) {
		atomic_store_explicit(&engine->workers[i].closing, 1,
				      memory_order_relaxed);
		/* A stop that met a full ring goes once there is room. */
		while (engine->backlogs[i].count) {
			engine_flush(engine, i);
			sched_yield();
		}
		fab_worker_join(&engine->workers[i]);
	}
	for (uint32_t i = 0; i < engine->worker_count; i++)
		engine_destruct_worker(engine, i);
	engine_free_lent(engine);
	fab_transfer_free_list(&engine->transfers);
	fab_region_free_list(&engine->regions);
	fab_routes_destruct(&engine->routes);
	fab_wakeup_close(&engine->doorbell);
	free((void *) (uintptr_t) engine->options.provider);
	free((void *) (uintptr_t) engine->options.source);
	free(engine->workers);
	free(engine->backlogs);
	free(engine);
}
