enum fab_access {
	FAB_ACCESS_LOCAL = 0, /* source of writes, target of reads */
	FAB_ACCESS_REMOTE_READ = 1,
	FAB_ACCESS_REMOTE_WRITE = 2,
};

/* A memory region on every lane of some workers. Made by fab_region_register;
 * owned by the engine until FAB_REGION_DEREGISTERED was reaped, invalid
 * afterwards. */
struct fab_region;

/* Register [address, address + bytes) on every lane of the workers in the bit
 * mask `workers`, at least one. bytes > 0; the memory is borrowed from the
 * caller until FAB_REGION_DEREGISTERED. `key` is asked for where the provider
 * lets us choose. Answered by FAB_REGION_REGISTERED with this token. Returns 0,
 * -FI_EINVAL or -FI_ENOMEM (then nothing follows). [loop] */
int fab_region_register(struct fab_engine *engine, uint64_t token,
			uint64_t address, uint64_t bytes, uint32_t access,
			uint64_t key, uint64_t workers,
			struct fab_region **region);

/* Close the region once no transfer uses it; FAB_REGION_DEREGISTERED with its
 * token follows. Also the way to free a region whose registration failed.
 * [loop] */
int fab_region_deregister(struct fab_engine *engine, struct fab_region *region);

/* Remote key on one lane of one worker (0 if that has none), and the address peers must use for the region's
 * first byte (its virtual address, or 0 without FI_MR_VIRT_ADDR). Valid after
 * FAB_REGION_REGISTERED with status 0. [loop] */
uint64_t fab_region_key(const struct fab_region *region, uint32_t worker,
			uint32_t lane);
uint64_t fab_region_base(const struct fab_region *region);
