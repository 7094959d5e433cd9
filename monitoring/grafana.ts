import {
  DashboardBuilder,
  DatasourceVariableBuilder,
  type Dashboard as GrafanaDashboard,
  QueryVariableBuilder,
  RowBuilder,
  VariableRefresh,
} from "@grafana/grafana-foundation-sdk/dashboard";
import { DataqueryBuilder } from "@grafana/grafana-foundation-sdk/prometheus";
import { PanelBuilder as StatBuilder } from "@grafana/grafana-foundation-sdk/stat";
import { PanelBuilder as LinesBuilder } from "@grafana/grafana-foundation-sdk/timeseries";
import { type Dashboard, type Panel, type VariableName, variables } from "./dashboard.ts";

const datasource = { type: "prometheus", uid: "$datasource" } as const;

/** Dashboard in Grafana's JSON model. */
export function grafanaDashboard({
  name,
  title,
  variables: names,
  rows,
}: Dashboard): GrafanaDashboard {
  const builder = new DashboardBuilder(title)
    .uid(name)
    .tags(["clipstack"])
    .refresh("30s")
    .time({ from: "now-1h", to: "now" })
    .readonly()
    .withVariable(
      new DatasourceVariableBuilder("datasource").label("Prometheus").type("prometheus"),
    );
  for (const each of names) builder.withVariable(variable(each));
  for (const [row, panels] of Object.entries(rows)) {
    builder.withRow(new RowBuilder(row));
    for (const each of panels) builder.withPanel(panel(each, panels));
  }
  return builder.build();
}

function variable(name: VariableName) {
  const { title, metric, label } = variables[name];
  return new QueryVariableBuilder(name)
    .label(title)
    .datasource(datasource)
    .query(`label_values(${metric}, ${label})`)
    .refresh(VariableRefresh.OnTimeRangeChanged)
    .multi(true)
    .includeAll(true)
    .allValue(".*")
    .current({ text: "All", value: "$__all" });
}

/** Columns of Grafana's grid. */
const columns = 24;

function panel({ title, unit, kind, description, queries }: Panel, row: readonly Panel[]) {
  const builder: Builder = kind === "stat" ? new StatBuilder() : new LinesBuilder().min(0);
  const perRow = row.length > 4 ? 3 : row.length;
  const isLow = row.every((each) => each.kind === "stat");
  builder
    .title(title)
    .unit(unit)
    .datasource(datasource)
    .span(columns / perRow)
    .height(isLow ? 5 : 8);
  if (description !== undefined) builder.description(description);
  for (const [legend, expr] of Object.entries(queries)) {
    builder.withTarget(new DataqueryBuilder().expr(expr).legendFormat(legend));
  }
  return builder;
}

type Builder = StatBuilder | LinesBuilder;
