// SPDX-License-Identifier: GPL-2.0
/*
 * The send engine: one work item per queue pair removes work requests from its
 * send queue in order and moves their data.  rdmavt owns the queues.  A work
 * item never runs concurrently with itself, so each queue has at most one
 * request in progress.
 *
 * Lock order, as in rdmavt: r_lock, then s_lock.  While data moves, only the
 * receiver's r_lock is held.
 */
#include <linux/slab.h>
#include <rdma/ib_hdrs.h>

#include "softib.h"

/* The number of work requests after which the engine yields the processor. */
#define SEND_BATCH 64

static bool is_connected(const struct rvt_qp *qp)
{
	return qp->ibqp.qp_type == IB_QPT_RC || qp->ibqp.qp_type == IB_QPT_UC;
}

static void lock_qp(struct rvt_qp *qp)
{
	spin_lock_irq(&qp->r_lock);
	spin_lock(&qp->s_lock);
}

static void unlock_qp(struct rvt_qp *qp)
{
	spin_unlock(&qp->s_lock);
	spin_unlock_irq(&qp->r_lock);
}

/*
 * The next work request, or NULL if there is none or if the queue must wait.
 * Requests of a failed queue pair are flushed first.
 */
static struct rvt_swqe *next_request(struct rvt_qp *qp)
{
	struct rvt_swqe *wqe = NULL;

	lock_qp(qp);
	while ((ib_rvt_state_ops[qp->state] & RVT_PROCESS_OR_FLUSH_SEND) &&
	       !(qp->s_flags & (RVT_S_ANY_WAIT | RVT_S_TIMER)) &&
	       qp->s_last != READ_ONCE(qp->s_head)) {
		/* Pairs with the barrier before s_head moves in rdmavt. */
		smp_rmb();
		wqe = rvt_get_swqe_ptr(qp, qp->s_last);
		if (ib_rvt_state_ops[qp->state] & RVT_PROCESS_NEXT_SEND_OK) {
			if (qp->s_last == qp->s_cur)
				qp->s_cur = rvt_qp_swqe_incr(qp, qp->s_cur);
			break;
		}
		if (ib_rvt_state_ops[qp->state] & RVT_FLUSH_SEND)
			rvt_send_complete(qp, wqe, IB_WC_WR_FLUSH_ERR);
		wqe = NULL;
		if (!(ib_rvt_state_ops[qp->state] & RVT_FLUSH_SEND))
			break;
	}
	unlock_qp(qp);
	return wqe;
}

static void last_wqe_reached(struct rvt_qp *qp)
{
	struct ib_event event = {
		.device = qp->ibqp.device,
		.element.qp = &qp->ibqp,
		.event = IB_EVENT_QP_LAST_WQE_REACHED,
	};

	qp->ibqp.event_handler(&event, qp->ibqp.qp_context);
}

/* Completes @wqe.  After an error, an RC queue pair fails (IBA 9.9.2). */
static void complete_request(struct rvt_qp *qp, struct rvt_swqe *wqe,
			     enum ib_wc_status status)
{
	int last_wqe = 0;

	lock_qp(qp);
	qp->s_retry = qp->s_retry_cnt;
	qp->s_rnr_retry = qp->s_rnr_retry_cnt;
	rvt_send_complete(qp, wqe, status);
	if (status != IB_WC_SUCCESS && qp->ibqp.qp_type == IB_QPT_RC)
		last_wqe = rvt_error_qp(qp, IB_WC_WR_FLUSH_ERR);
	unlock_qp(qp);
	if (last_wqe)
		last_wqe_reached(qp);
}

/*
 * Counts one attempt without an acknowledgement and arms the retry timer.
 * Return: false if no attempts are left.
 */
static bool retry_later(struct rvt_qp *qp)
{
	bool again = true;

	lock_qp(qp);
	/*
	 * A timeout of 0 means no time limit (IBA 11.2.5.3), so it never
	 * counts.
	 */
	if (qp->timeout && !qp->s_retry)
		again = false;
	else if (qp->timeout)
		qp->s_retry--;
	if (again && (ib_rvt_state_ops[qp->state] & RVT_PROCESS_NEXT_SEND_OK))
		rvt_mod_retry_timer(qp);
	unlock_qp(qp);
	return again;
}

/* The same for a receiver without a buffer; a limit of 7 means no limit. */
static bool rnr_retry_later(struct rvt_qp *qp, u8 rnr_timer)
{
	bool again = true;

	lock_qp(qp);
	if (!qp->s_rnr_retry)
		again = false;
	else if (qp->s_rnr_retry_cnt < 7)
		qp->s_rnr_retry--;
	if (again && (ib_rvt_state_ops[qp->state] & RVT_PROCESS_NEXT_SEND_OK))
		rvt_add_rnr_timer(qp, rnr_timer << IB_AETH_CREDIT_SHIFT);
	unlock_qp(qp);
	return again;
}

/* Return: whether the queue may process the next request. */
static bool send_connected(struct rvt_qp *qp, struct rvt_swqe *wqe)
{
	enum ib_wc_status status = IB_WC_SUCCESS;
	u8 rnr_timer = 0;

	switch (softib_send_connected(qp, wqe, &status, &rnr_timer)) {
	case SOFTIB_LOST:
		if (retry_later(qp))
			return false;
		status = IB_WC_RETRY_EXC_ERR;
		break;
	case SOFTIB_RNR:
		if (rnr_retry_later(qp, rnr_timer))
			return false;
		status = IB_WC_RNR_RETRY_EXC_ERR;
		break;
	case SOFTIB_DONE:
		break;
	}
	complete_request(qp, wqe, status);
	return true;
}

static void do_send(struct rvt_qp *qp)
{
	struct softib_qp *priv = qp->priv;
	struct rvt_swqe *wqe;
	unsigned int n;

	for (n = 0; n < SEND_BATCH; n++) {
		wqe = next_request(qp);
		if (!wqe)
			return;
		if (!is_connected(qp))
			complete_request(qp, wqe,
					 softib_send_datagram(qp, wqe));
		else if (!send_connected(qp, wqe))
			return;
	}
	queue_work(softib_wq, &priv->work);
}

static void send_work(struct work_struct *work)
{
	do_send(container_of(work, struct softib_qp, work)->qp);
}

static bool schedule_send(struct rvt_qp *qp)
{
	struct softib_qp *priv = qp->priv;

	return queue_work(softib_wq, &priv->work);
}

static int setup_wqe(struct rvt_qp *qp, struct rvt_swqe *wqe, bool *call_send)
{
	/*
	 * The engine may sleep, but the poster may not: never send from here.
	 */
	*call_send = false;
	if (!is_connected(qp) &&
	    wqe->length > ib_mtu_enum_to_int(softib_port_mtu))
		return -EINVAL;
	return 0;
}

static void *qp_priv_alloc(struct rvt_dev_info *rdi, struct rvt_qp *qp)
{
	struct softib_qp *priv = kzalloc(sizeof(*priv), GFP_KERNEL);

	if (!priv)
		return ERR_PTR(-ENOMEM);
	priv->qp = qp;
	INIT_WORK(&priv->work, send_work);
	return priv;
}

static void stop_send_queue(struct rvt_qp *qp)
{
	struct softib_qp *priv = qp->priv;

	cancel_work_sync(&priv->work);
}

/*
 * rdmavt marks the two management queue pairs of a port as used and never frees
 * them.  The MAD layer closes and reopens them when the device changes its
 * network namespace.
 */
static void free_management_qpn(struct rvt_dev_info *rdi, struct rvt_qp *qp)
{
	struct rvt_qpn_table *table = &rdi->qp_dev->qpn_table;
	bool gsi = qp->ibqp.qp_type == IB_QPT_GSI;

	if (!gsi && qp->ibqp.qp_type != IB_QPT_SMI)
		return;
	spin_lock(&table->lock);
	table->flags &= ~(1U << (gsi + 2 * (qp->port_num - 1)));
	spin_unlock(&table->lock);
}

static void qp_priv_free(struct rvt_dev_info *rdi, struct rvt_qp *qp)
{
	free_management_qpn(rdi, qp);
	/* A timer may have scheduled it again after the queue stopped. */
	stop_send_queue(qp);
	kfree(qp->priv);
}

static int get_pmtu_from_attr(struct rvt_dev_info *rdi, struct rvt_qp *qp,
			      struct ib_qp_attr *attr)
{
	if (attr->path_mtu < IB_MTU_256 || attr->path_mtu > softib_port_mtu)
		return -EINVAL;
	return attr->path_mtu;
}

static u32 mtu_from_qp(struct rvt_dev_info *rdi, struct rvt_qp *qp, u32 pmtu)
{
	return ib_mtu_enum_to_int(pmtu);
}

static int mtu_to_path_mtu(u32 mtu)
{
	return ib_mtu_int_to_enum(mtu);
}

static unsigned int free_all_qps(struct rvt_dev_info *rdi)
{
	return 0;
}

/* rdmavt requires these functions, for hardware whose queues have own state. */
static void nothing_to_do(struct rvt_qp *qp)
{
}

static void notify_restart_rc(struct rvt_qp *qp, u32 psn, int wait)
{
}

static const struct rvt_operation_params post_parms[RVT_OPERATION_MAX] = {
	[IB_WR_RDMA_WRITE] = {
		.length = sizeof(struct ib_rdma_wr),
		.qpt_support = BIT(IB_QPT_UC) | BIT(IB_QPT_RC),
	},
	[IB_WR_RDMA_WRITE_WITH_IMM] = {
		.length = sizeof(struct ib_rdma_wr),
		.qpt_support = BIT(IB_QPT_UC) | BIT(IB_QPT_RC),
	},
	[IB_WR_RDMA_READ] = {
		.length = sizeof(struct ib_rdma_wr),
		.qpt_support = BIT(IB_QPT_RC),
		.flags = RVT_OPERATION_ATOMIC,
	},
	[IB_WR_ATOMIC_CMP_AND_SWP] = {
		.length = sizeof(struct ib_atomic_wr),
		.qpt_support = BIT(IB_QPT_RC),
		.flags = RVT_OPERATION_ATOMIC | RVT_OPERATION_ATOMIC_SGE,
	},
	[IB_WR_ATOMIC_FETCH_AND_ADD] = {
		.length = sizeof(struct ib_atomic_wr),
		.qpt_support = BIT(IB_QPT_RC),
		.flags = RVT_OPERATION_ATOMIC | RVT_OPERATION_ATOMIC_SGE,
	},
	[IB_WR_SEND] = {
		.length = sizeof(struct ib_send_wr),
		.qpt_support = BIT(IB_QPT_UD) | BIT(IB_QPT_SMI) |
			BIT(IB_QPT_GSI) | BIT(IB_QPT_UC) | BIT(IB_QPT_RC),
	},
	[IB_WR_SEND_WITH_IMM] = {
		.length = sizeof(struct ib_send_wr),
		.qpt_support = BIT(IB_QPT_UD) | BIT(IB_QPT_SMI) |
			BIT(IB_QPT_GSI) | BIT(IB_QPT_UC) | BIT(IB_QPT_RC),
	},
	[IB_WR_SEND_WITH_INV] = {
		.length = sizeof(struct ib_send_wr),
		.qpt_support = BIT(IB_QPT_RC),
	},
	[IB_WR_REG_MR] = {
		.length = sizeof(struct ib_reg_wr),
		.qpt_support = BIT(IB_QPT_UC) | BIT(IB_QPT_RC),
		.flags = RVT_OPERATION_LOCAL,
	},
	[IB_WR_LOCAL_INV] = {
		.length = sizeof(struct ib_send_wr),
		.qpt_support = BIT(IB_QPT_UC) | BIT(IB_QPT_RC),
		.flags = RVT_OPERATION_LOCAL,
	},
};

static const enum ib_wc_opcode wc_opcode[RVT_OPERATION_MAX] = {
	[IB_WR_RDMA_WRITE] = IB_WC_RDMA_WRITE,
	[IB_WR_RDMA_WRITE_WITH_IMM] = IB_WC_RDMA_WRITE,
	[IB_WR_RDMA_READ] = IB_WC_RDMA_READ,
	[IB_WR_ATOMIC_CMP_AND_SWP] = IB_WC_COMP_SWAP,
	[IB_WR_ATOMIC_FETCH_AND_ADD] = IB_WC_FETCH_ADD,
	[IB_WR_SEND] = IB_WC_SEND,
	[IB_WR_SEND_WITH_IMM] = IB_WC_SEND,
	[IB_WR_SEND_WITH_INV] = IB_WC_SEND,
	[IB_WR_REG_MR] = IB_WC_REG_MR,
	[IB_WR_LOCAL_INV] = IB_WC_LOCAL_INV,
};

void softib_qp_ops(struct rvt_dev_info *rdi)
{
	struct rvt_driver_provided *f = &rdi->driver_f;

	f->schedule_send = schedule_send;
	f->schedule_send_no_lock = schedule_send;
	f->do_send = do_send;
	f->setup_wqe = setup_wqe;
	f->qp_priv_alloc = qp_priv_alloc;
	f->qp_priv_free = qp_priv_free;
	f->stop_send_queue = stop_send_queue;
	f->get_pmtu_from_attr = get_pmtu_from_attr;
	f->mtu_from_qp = mtu_from_qp;
	f->mtu_to_path_mtu = mtu_to_path_mtu;
	f->free_all_qps = free_all_qps;
	f->notify_qp_reset = nothing_to_do;
	f->flush_qp_waiters = nothing_to_do;
	f->quiesce_qp = nothing_to_do;
	f->notify_error_qp = nothing_to_do;
	f->notify_restart_rc = notify_restart_rc;
	rdi->post_parms = post_parms;
	rdi->wc_opcode = wc_opcode;
}
