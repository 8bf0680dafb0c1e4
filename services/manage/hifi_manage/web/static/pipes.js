"use strict";
page(async () => {
  const { json: { pipes } } = await call("GET", "/pipes");
  fillTable("declarations", pipes.map(({ pipe, declared, in_force, rollout, owner }) => [
    link(`/pipes/${pipe}`, pipe),
    rolloutBadge(rollout, in_force),
    declared?.number,
    in_force?.revision,
    declared?.author,
    moment(declared?.at_us),
    declared?.origin,
    owner?.email ?? owner?.webhook,
  ]));
});
