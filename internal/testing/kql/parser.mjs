// Microsoft's parser of Kusto, with the tables of Application Insights.

import { createRequire } from "node:module";

const require = createRequire(import.meta.url);
// The package is C# made into JavaScript: it defines globals, and its runtime has to be there first.
require("@kusto/language-service-next/bridge.min.js");
require("@kusto/language-service-next/Kusto.Language.Bridge.min.js");
export const { KustoCode, GlobalState, Syntax, Symbols } = globalThis.Kusto.Language;
export const list = (l) => globalThis.Bridge.toArray(l);
export const elements = (l) => list(l).map((separated) => separated.Element$1);

// The tables as the Logs of an Application Insights resource show them, which is not how its workspace names them.
// https://learn.microsoft.com/azure/azure-monitor/app/convert-classic-resource lists both.
const everywhere = `timestamp:datetime, itemId:string, itemType:string, customDimensions:dynamic, operation_Name:string,
  operation_Id:string, operation_ParentId:string, operation_SyntheticSource:string, session_Id:string, user_Id:string,
  user_AuthenticatedId:string, user_AccountId:string, application_Version:string, client_Type:string,
  client_Model:string, client_OS:string, client_IP:string, client_City:string, client_StateOrProvince:string,
  client_CountryOrRegion:string, client_Browser:string, cloud_RoleName:string, cloud_RoleInstance:string, appId:string,
  appName:string, iKey:string, sdkVersion:string`;
export const tables = {
  requests: `id:string, source:string, name:string, url:string, success:string, resultCode:string, duration:real,
    performanceBucket:string, customMeasurements:dynamic, itemCount:int`,
  dependencies: `id:string, target:string, type:string, name:string, data:string, success:string, resultCode:string,
    duration:real, performanceBucket:string, customMeasurements:dynamic, itemCount:int`,
  customEvents: `name:string, customMeasurements:dynamic, itemCount:int`,
  customMetrics: `name:string, value:real, valueCount:int, valueSum:real, valueMin:real, valueMax:real,
    valueStdDev:real`,
  traces: `message:string, severityLevel:int, customMeasurements:dynamic, itemCount:int`,
};
// What the Logs of the workspace have beside that.
// https://learn.microsoft.com/azure/azure-monitor/reference/tables-index describes them.
const inWorkspace = {
  AppServiceConsoleLogs: `TimeGenerated:datetime, Category:string, ContainerId:string, Host:string, Level:string,
    OperationName:string, ResultDescription:string, _ResourceId:string`,
  _LogOperation: `TimeGenerated:datetime, Category:string, Operation:string, Level:string, Detail:string,
    _ResourceId:string`,
};
const table = (name, columns) => Symbols.TableSymbol.From(`(${columns})`).WithName(name);
export const globals = GlobalState.Default.WithDatabase(new Symbols.DatabaseSymbol.ctor("insights", [
  ...Object.entries(tables).map(([name, columns]) => table(name, `${everywhere}, ${columns}`)),
  ...Object.entries(inWorkspace).map(([name, columns]) => table(name, columns)),
]));
