// SPDX-License-Identifier: GPL-2.0
/*
 * The subnet administrator: answers ClassPortInfo, MCMemberRecord and
 * PathRecord, which IPoIB and the connection managers need.  Other attributes
 * are rejected as unsupported, as the specification requires.
 *
 * A query waits in the queue of its port for sa_delay milliseconds, and is
 * processed then.  Its sender does not wait: as on a real fabric, it sends the
 * query again or gives up before a late response comes.
 */
#include <linux/jiffies.h>
#include <linux/slab.h>

#include "softib.h"

/**
 * softib_sa_selects - whether a value satisfies a selector of a request
 * @selector_and_value: as in a record: enum ib_sa_selector above six value bits
 * @actual: the actual value
 * @weight: maps values to their order
 */
bool softib_sa_selects(u8 selector_and_value, u8 actual,
		       int (*weight)(u8 value))
{
	int wanted = weight(selector_and_value & 0x3f), is = weight(actual);

	switch (selector_and_value >> 6) {
	case IB_SA_GT:
		return is > wanted;
	case IB_SA_LT:
		return is < wanted;
	case IB_SA_EQ:
		return is == wanted;
	default:
		return true;
	}
}

static int mtu_weight(u8 mtu)
{
	return ib_mtu_enum_to_int(mtu);
}

static int rate_weight(u8 rate)
{
	return ib_rate_to_mbps(rate);
}

static u8 exactly(u8 value)
{
	return IB_SA_EQ << 6 | value;
}

static enum softib_sa_status class_port_info(void *data)
{
	struct ib_class_port_info *info = data;

	memset(info, 0, sizeof(*info));
	info->base_version = IB_MGMT_BASE_VERSION;
	info->class_version = IB_SA_CLASS_VERSION;
	/* With it, IPoIB uses send-only joins, as with OpenSM. */
	ib_set_cpi_capmask2(info, IB_SA_CAP_MASK2_SENDONLY_FULL_MEM_SUPPORT);
	ib_set_cpi_resp_time(info, SOFTIB_LIFETIME);
	return SOFTIB_SA_OK;
}

/*
 * The port of the GID or LID in a path request.
 * Return: SOFTIB_SA_INSUFFICIENT_COMPONENTS if the request has neither.
 */
static enum softib_sa_status
path_end(const union ib_gid *gid, __be16 lid, ib_sa_comp_mask by_gid,
	 ib_sa_comp_mask by_lid, struct softib_hca **end)
{
	if (by_gid) {
		*end = softib_by_gid(gid);
		if (*end && by_lid && (*end)->lid != be16_to_cpu(lid))
			*end = NULL;
	} else if (by_lid) {
		*end = softib_by_lid(be16_to_cpu(lid));
	} else {
		return SOFTIB_SA_INSUFFICIENT_COMPONENTS;
	}
	return *end && softib_is_active(*end) ? SOFTIB_SA_OK :
						SOFTIB_SA_NO_RECORDS;
}

/* A partition in which both ports may communicate; @wanted if it is not 0. */
static u16 shared_pkey(const struct softib_hca *a, const struct softib_hca *b,
		       u16 wanted)
{
	int i, j;

	for (i = 0; i < SOFTIB_PKEYS; i++) {
		u16 pkey = READ_ONCE(a->pkeys[i]);

		if (wanted && ((pkey ^ wanted) & 0x7fff))
			continue;
		for (j = 0; j < SOFTIB_PKEYS; j++)
			if (softib_pkeys_match(pkey, READ_ONCE(b->pkeys[j])))
				return wanted ?: pkey;
	}
	return 0;
}

static enum softib_sa_status path_between(struct softib_hca *from,
					  struct softib_hca *to,
					  struct softib_path *rec,
					  ib_sa_comp_mask mask)
{
	u8 rate = from->rate->gbps < to->rate->gbps ? from->rate->sa :
						      to->rate->sa;
	u16 pkey = mask & IB_SA_PATH_REC_PKEY ? be16_to_cpu(rec->pkey) : 0;

	pkey = shared_pkey(from, to, pkey);
	if (!pkey)
		return SOFTIB_SA_NO_RECORDS;
	if ((mask & IB_SA_PATH_REC_MTU_SELECTOR) &&
	    (mask & IB_SA_PATH_REC_MTU) &&
	    !softib_sa_selects(rec->mtu, softib_port_mtu, mtu_weight))
		return SOFTIB_SA_NO_RECORDS;
	if ((mask & IB_SA_PATH_REC_RATE_SELECTOR) &&
	    (mask & IB_SA_PATH_REC_RATE) &&
	    !softib_sa_selects(rec->rate, rate, rate_weight))
		return SOFTIB_SA_NO_RECORDS;

	softib_port_gid(to, &rec->dgid);
	softib_port_gid(from, &rec->sgid);
	rec->dlid = cpu_to_be16(to->lid);
	rec->slid = cpu_to_be16(from->lid);
	rec->pkey = cpu_to_be16(pkey);
	rec->reversible_numb = 0x80 | 1;
	rec->mtu = exactly(softib_port_mtu);
	rec->rate = exactly(rate);
	rec->lifetime = exactly(SOFTIB_LIFETIME);
	return SOFTIB_SA_OK;
}

static enum softib_sa_status path_query(struct softib_hca *asker,
					struct softib_path *rec,
					ib_sa_comp_mask mask)
{
	struct softib_hca *from = asker, *to;
	enum softib_sa_status status;

	rcu_read_lock();
	status = path_end(&rec->dgid, rec->dlid, mask & IB_SA_PATH_REC_DGID,
			  mask & IB_SA_PATH_REC_DLID, &to);
	if (!status && (mask & (IB_SA_PATH_REC_SGID | IB_SA_PATH_REC_SLID)))
		status = path_end(&rec->sgid, rec->slid,
				  mask & IB_SA_PATH_REC_SGID,
				  mask & IB_SA_PATH_REC_SLID, &from);
	if (!status)
		status = path_between(from, to, rec, mask);
	rcu_read_unlock();
	return status;
}

/* Attribute and method as one number, for the switch statement. */
#define QUESTION(attr, method) ((attr) << 8 | (method))

/*
 * Processes @mad, a query of @from, which becomes the response.
 * Return: false if the query gets no response.
 */
static bool respond(struct softib_hca *from, struct ib_sa_mad *mad)
{
	ib_sa_comp_mask mask = mad->sa_hdr.comp_mask;
	struct ib_mad_hdr *hdr = &mad->mad_hdr;
	enum softib_sa_status status;

	if (hdr->method == IB_MGMT_METHOD_SEND ||
	    hdr->method == IB_MGMT_METHOD_REPORT)
		return false;
	switch (QUESTION(be16_to_cpu(hdr->attr_id), hdr->method)) {
	case QUESTION(IB_SA_ATTR_CLASS_PORTINFO, IB_MGMT_METHOD_GET):
		status = class_port_info(mad->data);
		break;
	case QUESTION(IB_SA_ATTR_MC_MEMBER_REC, IB_MGMT_METHOD_SET):
		status = softib_group_join(from, (void *)mad->data, mask);
		break;
	case QUESTION(IB_SA_ATTR_MC_MEMBER_REC, IB_SA_METHOD_DELETE):
		status = softib_group_leave(from, (void *)mad->data);
		break;
	case QUESTION(IB_SA_ATTR_MC_MEMBER_REC, IB_MGMT_METHOD_GET):
		status = softib_group_get(from, (void *)mad->data);
		break;
	case QUESTION(IB_SA_ATTR_PATH_REC, IB_MGMT_METHOD_GET):
		status = path_query(from, (void *)mad->data, mask);
		break;
	default:
		hdr->status =
			cpu_to_be16(IB_MGMT_MAD_STATUS_UNSUPPORTED_METHOD_ATTRIB);
		goto out;
	}
	hdr->status = cpu_to_be16(status << 8);
out:
	/* GetResp answers both Set and Get; others have their own response. */
	hdr->method = hdr->method == IB_MGMT_METHOD_SET ?
		IB_MGMT_METHOD_GET_RESP : hdr->method | IB_MGMT_METHOD_RESP;
	return true;
}

/* A query that waits for its response. */
struct query {
	struct list_head list;
	unsigned long arrived;	/* jiffies */
	struct softib_datagram dgram;
};

static void query_free(struct query *query)
{
	kfree(query->dgram.data);
	kfree(query);
}

/*
 * Removes the first query from @queue if it is due.  If it is not, schedules
 * the work for it.
 */
static struct query *next_due(struct softib_sa_queue *queue)
{
	unsigned long delay = msecs_to_jiffies(READ_ONCE(softib_sa_delay));
	unsigned long waited;
	struct query *query;

	spin_lock(&queue->lock);
	query = list_first_entry_or_null(&queue->queries, struct query, list);
	waited = query ? jiffies - query->arrived : 0;
	if (query && waited >= delay) {
		list_del(&query->list);
	} else if (query) {
		queue_delayed_work(softib_wq, &queue->work, delay - waited);
		query = NULL;
	}
	spin_unlock(&queue->lock);
	return query;
}

static void answer_due(struct work_struct *work)
{
	struct softib_hca *hca = container_of(to_delayed_work(work),
					      struct softib_hca, sa.work);
	struct query *query;

	while ((query = next_due(&hca->sa))) {
		/* The subnet manager forgets a port that is not ACTIVE. */
		if (softib_is_active(hca) && respond(hca, query->dgram.data))
			softib_datagram_respond(hca, &query->dgram);
		query_free(query);
	}
}

void softib_sa_init(struct softib_hca *hca)
{
	spin_lock_init(&hca->sa.lock);
	INIT_LIST_HEAD(&hca->sa.queries);
	INIT_DELAYED_WORK(&hca->sa.work, answer_due);
}

/**
 * softib_sa_wake - answer the queries of a port that are due
 * @hca: the port; it has a new query, or sa_delay has changed
 */
void softib_sa_wake(struct softib_hca *hca)
{
	mod_delayed_work(softib_wq, &hca->sa.work, 0);
}

/**
 * softib_sa_ask - receive an SA query
 * @from: the port that sent the query
 * @dgram: the query; its data is freed here
 */
void softib_sa_ask(struct softib_hca *from, struct softib_datagram *dgram)
{
	struct query *query = kzalloc(sizeof(*query), GFP_KERNEL);

	if (!query)
		return;
	query->arrived = jiffies;
	query->dgram = *dgram;
	dgram->data = NULL;
	spin_lock(&from->sa.lock);
	list_add_tail(&query->list, &from->sa.queries);
	spin_unlock(&from->sa.lock);
	softib_sa_wake(from);
}

/**
 * softib_sa_stop - drop the queries of a port
 * @hca: the port; it is unregistered and sends no more queries
 */
void softib_sa_stop(struct softib_hca *hca)
{
	struct query *query, *next;

	cancel_delayed_work_sync(&hca->sa.work);
	list_for_each_entry_safe(query, next, &hca->sa.queries, list)
		query_free(query);
}
